// What Bull and BullMQ call the same.

export const EVENTS = ["active", "completed", "failed", "stalled"];

// `picture` makes plain fields of the library's own job; its state is asked from the store.
export function common(queue, picture) {
  const shown = async (job) => job && { ...picture(job), state: await job.getState() };
  return {
    add: async (name, data, options) => String((await queue.add(name, data, options)).id),
    addBulk: async (jobs) => (await queue.addBulk(jobs)).map((job) => String(job.id)),
    counts: () => queue.getJobCounts(),
    job: async (id) => shown(await queue.getJob(id)),
    jobs: async (states, start, end, ascending) => {
      const found = await queue.getJobs(states, start, end, ascending);
      return Promise.all(found.filter(Boolean).map(shown));
    },
    metrics: (kind, start, end) => queue.getMetrics(kind, start, end),
    workers: () => queue.getWorkers(),
    logs: (id, start, end) => queue.getJobLogs(id, start, end),
    pause: () => queue.pause(),
    resume: () => queue.resume(),
    isPaused: () => queue.isPaused(),
    obliterate: (force) => queue.obliterate({ force }),
    call: (method, args) => queue[method](...args),
    callJob: async (id, method, args) => (await queue.getJob(id))[method](...args),
  };
}
