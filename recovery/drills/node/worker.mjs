// One process of a fire drill: a worker of the user's own Bull or BullMQ, or whoever adds its job.
//
// What to do stands in DRILL_ORDER; what happens is told on stderr, one JSON object a line. SIGUSR2 lets the job in
// hand finish. SIGTERM ends it as an application ends: it waits for its job as long as `shutdown` says.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const order = JSON.parse(process.env.DRILL_ORDER);
delete process.env.DRILL_ORDER;
const require = createRequire(import.meta.url);
const WORDS = 300; // characters of a text that are worth telling
const finishers = [];
let close = async () => {};

const tell = (event, more = {}) => process.stderr.write(`${JSON.stringify({ event, ...more })}\n`);
const wrong = (error) => tell("error", { text: String(error?.message ?? error).slice(0, WORDS) });

process.on("SIGUSR2", () => finishers.splice(0).forEach((finish) => finish()));
process.on("SIGTERM", () => {
  tell("closing");
  setTimeout(() => process.exit(0), order.shutdown);
  close().then(() => process.exit(0), wrong);
});

async function run() {
  const library = await import(pathToFileURL(require.resolve(order.package)).href);
  const known = order.library === "bull" ? bull(library.default) : bullmq(library.default ?? library);
  if (order.role === "add") {
    tell("added", { job: await known.add() });
    process.exit(0);
  }
  const client = await known.work();
  tell("ready", { version: require(`${order.package}/package.json`).version, connection: await number(client) });
}

function bullmq({ Queue, Worker }) {
  const link = { prefix: order.prefix, connection: connection() };
  return {
    add: async () => String((await listened(new Queue(order.queue, link)).add("drill", {})).id),
    work: async () => {
      const worker = listened(new Worker(order.queue, work, { ...link, ...order.options, name: order.worker }));
      close = () => worker.close();
      await worker.waitUntilReady();
      return worker.client ?? worker.backend?.client; // the latter since 6
    },
  };
}

function bull(Bull) {
  const link = { prefix: order.prefix, redis: connection() };
  return {
    add: async () => String((await listened(new Bull(order.queue, link)).add("drill", {})).id),
    work: async () => {
      const { concurrency, ...settings } = order.options;
      const queue = listened(new Bull(order.queue, { ...link, settings }));
      close = () => queue.close();
      queue.process("*", concurrency, work).catch(wrong);
      await queue.isReady();
      return queue.client;
    },
  };
}

// The library says "active" of a job that it only fails; a job that begins is one whose processor is called.
function work(job) {
  tell("started", { job: String(job.id) });
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, order.job, "worked");
    finishers.push(() => {
      clearTimeout(timer);
      resolve("let go");
    });
  });
}

function listened(emitter) {
  emitter.on("error", wrong);
  emitter.on("completed", (job) => tell("completed", { job: String(job?.id ?? job) }));
  emitter.on("stalled", (job) => tell("stalled", { job: String(job?.id ?? job) }));
  emitter.on("failed", (job, error) => tell("failed", { job: String(job?.id ?? job), text: String(error?.message).slice(0, WORDS) }));
  return emitter;
}

function connection() {
  const { tls, ...place } = order.connection;
  const found = Object.fromEntries(Object.entries(place).filter(([, value]) => value !== null && value !== ""));
  return { ...found, ...(tls ? { tls: secured(tls) } : {}), maxRetriesPerRequest: null };
}

function secured({ ca, certificate, key, verify }) {
  const read = (path) => (path ? readFileSync(path) : undefined);
  return { ca: read(ca), cert: read(certificate), key: read(key), rejectUnauthorized: verify };
}

// Which connection is this worker's, so that its end can be seen; an ACL may forbid to ask.
async function number(client) {
  try {
    return await (await client).call("CLIENT", "ID");
  } catch {
    return null;
  }
}

run().catch((error) => {
  wrong(error);
  process.exit(1);
});
