// Lists the queues, finds the orphan of one and requeues it twice, with the types that were generated for TypeScript.
// `node requeue.ts URL QUEUE`, with the token in TOKEN; prints the two outcomes.

import assert from "node:assert/strict";

import createClient from "openapi-fetch";

import type { components, paths } from "./unstall.d.ts";

const [url, name] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${process.env.TOKEN}` } });

const queues = await client.GET("/api/v1/queues");
assert(queues.data?.queues.some((queue) => `${queue.deployment}/${queue.id}` === name));

const found = await client.GET("/api/v1/orphans", { params: { query: { queue: name, verdict: "abandoned" } } });
assert.equal(found.data?.orphans.length, 1);
const { id, seen } = found.data.orphans[0];

const body: components["schemas"]["ActionOrder"] = {
  act: "requeue",
  queue: name,
  jobs: [{ id, seen }],
  reason: "its worker died",
};
for (let time = 0; time < 2; time++) {
  const done = await client.POST("/api/v1/actions", { body });
  console.log(done.data?.results[0].outcome);
}
