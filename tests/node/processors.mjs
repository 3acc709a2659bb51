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
    // Hangs with a young job, so that its worker can be killed; whoever has it later ends it. Each run is written down.
    young: async (job) => {
      await job.log(`${process.pid} ${Date.now()}`);
      if (Date.now() - job.timestamp < job.data.ms) await all.hang(job);
      return "done";
    },
    // Each run writes into the job's log that it began and that it ended: a run whose process was killed has one line.
    tracked: async (job) => {
      await job.log(`${process.pid} ${Date.now()} began`);
      await pause(job.data.ms);
      await job.log(`${process.pid} ${Date.now()} ended`);
      return "done";
    },
    log: async (job) => {
      for (let line = 1; line <= (job.data?.lines ?? 3); line++) await job.log(`line ${line}`);
      return "logged";
    },
    progress: async (job) => {
      await report(job, job.data?.progress ?? 50);
      return "reported";
    },
    // Its event loop never turns again.
    spin: async (job) => {
      await pause(1000 * job.data.after);
      for (;;);
    },
    swell: async (job) => {
      await pause(1000 * job.data.after);
      for (const kept = []; ; await pause(10)) kept.push(Buffer.alloc(4_000_000, 1));
    },
    slow: async (job) => {
      await pause(job.data?.ms ?? 200);
      return "slowly";
    },
  };
  if (!Object.hasOwn(all, name)) throw new Error(`no such processor: ${name}`);
  return all[name];
}
