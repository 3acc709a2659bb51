// A scrape as exporters do it that keep nothing between two of them: find the queues by SCAN, as it comes (COUNT 10),
// then ask each for its counts, all in one MULTI. These are the commands of igrek8/bullmq-prometheus, which is
// published as a container image only. `node exporter.mjs URL`; prints its port when it listens.

import { createServer } from "node:http";
import { Redis } from "ioredis";

const redis = new Redis(process.argv[2], { maxRetriesPerRequest: null });
const LISTS = ["active", "wait"];
const SETS = ["waiting-children", "prioritized", "delayed", "failed", "completed"];

async function found() {
  const names = new Set();
  let cursor = "0";
  do {
    const [next, keys] = await redis.scan(cursor, "MATCH", "bull:*:meta");
    for (const key of keys) names.add(key.split(":")[1]);
    cursor = next;
  } while (cursor !== "0");
  return [...names];
}

async function scrape() {
  const names = await found();
  const multi = redis.multi();
  for (const name of names) {
    for (const list of LISTS) multi.llen(`bull:${name}:${list}`);
    for (const set of SETS) multi.zcount(`bull:${name}:${set}`, "-inf", "+inf");
  }
  const counts = await multi.exec();
  const states = [...LISTS, ...SETS];
  const lines = states.flatMap((state, place) =>
    names.map((name, n) => `bull_${state}_total{queue="${name}"} ${counts[n * states.length + place][1]}\n`),
  );
  return lines.join("");
}

const server = createServer(async (_, response) => {
  const body = await scrape();
  response.writeHead(200, { "Content-Type": "text/plain", "Content-Length": Buffer.byteLength(body) }).end(body);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.on("SIGTERM", () => process.exit(0));
