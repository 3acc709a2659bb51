// What a worker does with a job, chosen by name.

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// `report` is the library's own way to write progress; `held` collects what lets a hanging job go.
export function processor(name, { report, held }) {
  const all = {
    ok: async (job) => job.data?.result ?? "ok",
    fail: async (job) => {
      throw new Error(job.data?.reason ?? "it failed");
    },
    hang: (job) => new Promise((resolve) => held.push(() => resolve(job.data?.result ?? "let go"))),
    log: async (job) => {
      for (let line = 1; line <= (job.data?.lines ?? 3); line++) await job.log(`line ${line}`);
      return "logged";
    },
    progress: async (job) => {
      await report(job, job.data?.progress ?? 50);
      return "reported";
    },
    slow: async (job) => {
      await pause(job.data?.ms ?? 200);
      return "slowly";
    },
  };
  if (!Object.hasOwn(all, name)) throw new Error(`no such processor: ${name}`);
  return all[name];
}
