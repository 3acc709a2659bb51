// BullMQ 3, 4, 5 and 6 behind the words of the driver.

import { createRequire } from "node:module";
import { common, EVENTS } from "./common.mjs";
import { read } from "./connections.mjs";
import { swept } from "./hands.mjs";
import { processor } from "./processors.mjs";

const FIELDS = [
  "id", "name", "data", "opts", "progress", "attemptsMade", "attemptsStarted", "stalledCounter", "priority", "delay",
  "timestamp", "processedOn", "finishedOn", "failedReason", "stacktrace", "returnvalue", "parentKey", "parent",
  "processedBy", "repeatJobKey", "deduplicationId", "deferredFailure",
];

export function bullmq(library, complain) {
  const require = createRequire(import.meta.url);
  const { Queue, Worker, FlowProducer } = require(library);
  const Redis = createRequire(require.resolve(library))("ioredis");

  // A worker's connection must wait for ever; the library says so when it does not.
  function connect(where) {
    const { single, cluster } = read(where.url);
    if (single) return { prefix: where.prefix, connection: { ...single, maxRetriesPerRequest: null } };
    const redisOptions = { maxRetriesPerRequest: null };
    return { prefix: where.prefix, connection: new Redis.Cluster(cluster, { redisOptions }) };
  }

  // A connection that we made is ours to end.
  async function end(connection) {
    if (connection.disconnect) connection.disconnect();
  }

  return {
    version: require(`${library}/package.json`).version,

    async open(where) {
      const options = connect(where);
      const queue = new Queue(where.name, options);
      queue.on("error", complain);
      await queue.waitUntilReady();
      const close = async () => {
        await queue.close();
        await end(options.connection);
      };
      return { ...common(queue, picture), ...own(queue), close };
    },

    async flow(where, tree) {
      const options = connect(where);
      const producer = new FlowProducer(options);
      producer.on("error", complain);
      try {
        return branch(await producer.add(tree));
      } finally {
        await producer.close();
        await end(options.connection);
      }
    },

    async work(where, name, options, record) {
      const held = [];
      const run = processor(name, { held, report: (job, value) => job.updateProgress(value) });
      const link = connect(where);
      const worker = new Worker(where.name, run, { ...link, ...options });
      worker.on("error", complain);
      for (const event of EVENTS) worker.on(event, (job) => record(event, job?.id ?? job));
      await worker.waitUntilReady();
      const close = async (force) => {
        await worker.close(force);
        await end(link.connection);
      };
      return { held, close };
    },

    async hand(where, options) {
      const link = connect(where);
      const worker = new Worker(where.name, null, { ...link, ...options, autorun: false });
      worker.on("error", complain);
      await worker.waitUntilReady();
      let turn = 0;
      return {
        take: () => worker.getNextJob(`${worker.id}:${turn++}`, { block: false }),
        finish: (job) => job.moveToCompleted("by hand", job.token, false),
        fail: (job, error) => job.moveToFailed(error, job.token, false),
        renew: (job, ms) => job.extendLock(job.token, ms),
        token: (job) => job.token,
        sweep: () => swept(worker, () => worker.moveStalledJobsToWait()),
        close: async () => {
          await worker.close(true);
          await end(link.connection);
        },
      };
    },
  };
}

const own = (queue) => ({
  schedule: async (id, repeat, { name, data, opts }) => {
    const job = queue.upsertJobScheduler
      ? await queue.upsertJobScheduler(id, repeat, { name, data, opts })
      : await queue.add(name, data, { ...opts, jobId: id, repeat });
    return job.id;
  },
  schedules: () => (queue.getJobSchedulers ? queue.getJobSchedulers(0, -1) : queue.getRepeatableJobs(0, -1)),
  dependencies: async (id) => (await queue.getJob(id)).getDependencies(),
});

const picture = (job) => Object.fromEntries(FIELDS.map((name) => [name, job[name]]));

const branch = ({ job, children }) => ({
  id: job.id,
  queue: job.queueName,
  children: (children ?? []).map(branch),
});
