// One library, driven over stdin and stdout: a JSON object a line in, one a line out, in the same order.
//
//   node driver.mjs bullmq5
//
// The first line out is {"ready": true, "library", "version"}. Each later one answers a command by its `id`:
// {"id", "value"} or {"id", "error", "missing"}. `missing` means that this library has no such thing.
// When stdin ends the process ends: no worker outlives the tests.

import { createInterface } from "node:readline";
import { bull } from "./bull.mjs";
import { bullmq } from "./bullmq.mjs";
import { read } from "./connections.mjs";
import { hands } from "./hands.mjs";

const CLOSE_MS = 1000; // a connection whose store is gone may never close
const EVENTS_KEPT = 10_000;

const complain = (error) => process.stderr.write(`${error?.stack ?? error}\n`);
process.on("unhandledRejection", complain);

const name = process.argv[2];
const library = name.startsWith("bullmq") ? bullmq(name, complain) : bull(name, complain);
const queues = new Map();
const workers = new Map();
const moved = hands(library);
let hasMetCluster = false;

const plain = ["counts", "schedules", "isPaused", "pause", "resume", "workers"];
const operations = {
  add: (queue, { name, data, opts }) => queue.add(name, data, opts),
  addBulk: (queue, { jobs }) => queue.addBulk(jobs),
  schedule: (queue, { schedule, when, job }) => need(queue, "schedule")(schedule, when, job),
  job: (queue, { job }) => queue.job(job),
  jobs: (queue, { states, start, end, ascending }) => queue.jobs(states, start, end, ascending),
  metrics: (queue, { kind, start, end }) => queue.metrics(kind, start, end),
  logs: (queue, { job, start, end }) => queue.logs(job, start, end),
  dependencies: (queue, { job }) => need(queue, "dependencies")(job),
  obliterate: (queue, { force }) => queue.obliterate(force),
  call: (queue, { method, args }) => queue.call(method, args),
  callJob: (queue, { job, method, args }) => queue.callJob(job, method, args),
  ...Object.fromEntries(plain.map((op) => [op, (queue) => queue[op]()])),
};

const alone = {
  addFlow: ({ queue, tree }) => need(library, "flow")(queue, tree),
  work,
  hand: moved.hand,
  step: moved.step,
  closeHands: moved.closeHands,
  events: ({ worker }) => workers.get(worker).events,
  release: ({ worker }) => letGo(workers.get(worker)),
  closeWorker: ({ worker, force }) => closeWorker(worker, force),
  reset,
};

async function answer(command) {
  if (Object.hasOwn(alone, command.op)) return alone[command.op](command);
  if (!Object.hasOwn(operations, command.op)) throw new Error(`no such operation: ${command.op}`);
  return operations[command.op](await opened(command.queue), command);
}

async function opened(where) {
  const key = JSON.stringify([where.url, where.prefix, where.name]);
  hasMetCluster ||= Boolean(read(where.url).cluster);
  if (!queues.has(key)) queues.set(key, await library.open(where));
  return queues.get(key);
}

async function work({ worker, queue, processor, options }) {
  hasMetCluster ||= Boolean(read(queue.url).cluster);
  const events = [];
  const record = (event, job) => events.length < EVENTS_KEPT && events.push([event, job === undefined ? null : String(job)]);
  workers.set(worker, { events, ...(await library.work(queue, processor, options, record)) });
}

function letGo(worker) {
  const count = worker.held.length;
  for (const go of worker.held.splice(0)) go();
  return count;
}

// True when it closed in time.
async function closeWorker(id, force) {
  const worker = workers.get(id);
  workers.delete(id);
  return worker ? inTime(worker.close(force)) : true;
}

// The next test starts with no worker and no connection of the last one; how many would not close. A client of a
// cluster that is closed while it is still meeting the nodes may keep a connection: count it as one of them.
async function reset() {
  const open = [...queues.values()];
  queues.clear();
  const closed = await Promise.all([
    ...[...workers.keys()].map((id) => closeWorker(id, true)),
    ...open.map((queue) => inTime(queue.close())),
    inTime(moved.closeHands()),
  ]);
  return closed.filter((done) => !done).length + (hasMetCluster ? 1 : 0);
}

async function inTime(closing) {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, CLOSE_MS, false);
  });
  const done = closing.then(() => true, complain);
  const closed = await Promise.race([done, late]);
  clearTimeout(timer);
  return closed === true;
}

function need(owner, method) {
  if (owner[method]) return owner[method];
  throw Object.assign(new Error(`${name} has no ${method}`), { missing: true });
}

function say(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

async function turn(line) {
  const command = JSON.parse(line);
  try {
    say({ id: command.id, value: (await answer(command)) ?? null });
  } catch (error) {
    const missing = error.missing === true || /is not a function/.test(error.message);
    say({ id: command.id, error: error.stack ?? String(error), missing });
  }
}

say({ ready: true, library: name, version: library.version });
for await (const line of createInterface({ input: process.stdin })) await turn(line);
process.exit(0);
