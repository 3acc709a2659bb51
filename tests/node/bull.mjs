// Bull 3 and 4 behind the words of the driver.

import { createRequire } from "node:module";
import { common, EVENTS } from "./common.mjs";
import { read } from "./connections.mjs";
import { swept } from "./hands.mjs";
import { processor } from "./processors.mjs";

export function bull(library, complain) {
  const require = createRequire(import.meta.url);
  const Bull = require(library);
  const Redis = createRequire(require.resolve(library))("ioredis");

  function connect(where) {
    const { single, cluster } = read(where.url);
    if (single) return { redis: single };
    const redisOptions = { maxRetriesPerRequest: null, enableReadyCheck: false };
    return { createClient: () => new Redis.Cluster(cluster, { redisOptions }) };
  }

  function make(where, options = {}) {
    const queue = new Bull(where.name, { prefix: where.prefix, ...connect(where), ...options });
    queue.on("error", complain);
    return queue;
  }

  return {
    version: require(`${library}/package.json`).version,

    async open(where) {
      const queue = make(where);
      await queue.isReady();
      return { ...common(queue, picture), ...own(queue), close: () => close(queue, true) };
    },

    async work(where, name, { concurrency = 1, metrics, limiter, ...settings }, record) {
      const queue = make(where, { settings, metrics, limiter });
      const held = [];
      for (const event of EVENTS) queue.on(event, (job) => record(event, job?.id ?? job));
      const run = processor(name, { held, report: (job, value) => job.progress(value) });
      queue.process("*", concurrency, run).catch(complain);
      await queue.isReady();
      return { held, close: (force) => close(queue, force) };
    },

    // Its token is the queue object's own, so each hand is a process to Bull.
    async hand(where, settings) {
      const queue = make(where, { settings });
      await queue.isReady();
      return {
        take: () => {
          queue.drained = false; // else it waits for a job, as a worker does
          return queue.getNextJob();
        },
        finish: (job) => job.moveToCompleted("by hand", false, true),
        fail: (job, error) => job.moveToFailed(error, false),
        renew: (job, ms) => job.extendLock(ms),
        token: () => queue.token,
        sweep: () => swept(queue, () => queue.moveUnlockedJobsToWait()),
        close: () => close(queue, true),
      };
    },
  };
}

// Bull 3 cuts its blocking connection to stop a worker, and that one connects again after `close`.
async function close(queue, force) {
  await queue.close(force);
  for (const client of queue.clients) client.disconnect();
}

const own = (queue) => ({
  schedule: async (id, { pattern, ...repeat }, { name, data, opts }) => {
    const rhythm = pattern ? { cron: pattern, ...repeat } : repeat;
    const job = await queue.add(name, data, { ...opts, jobId: id, repeat: rhythm });
    return String(job.id);
  },
  schedules: () => queue.getRepeatableJobs(),
});

function picture(job) {
  const { toKey, ...fields } = job.toJSON();
  return { ...fields, id: String(job.id), priority: job.opts.priority };
}
