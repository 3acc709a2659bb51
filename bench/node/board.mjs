// bull-board over the same queues: `node board.mjs URL QUEUES`; prints its port when it listens.
// All queues share one connection, as its manual advises: with one each it would only be slower.

import { createBullBoard } from "@bull-board/api";
import { BullMQAdapter } from "@bull-board/api/bullMQAdapter";
import { ExpressAdapter } from "@bull-board/express";
import { Queue } from "bullmq";
import express from "express";
import { Redis } from "ioredis";

const [url, count] = process.argv.slice(2);
const connection = new Redis(url, { maxRetriesPerRequest: null });
connection.setMaxListeners(0);

const queues = Array.from({ length: Number(count) }, (_, n) => {
  const queue = new Queue(`bench-${n}`, { connection });
  queue.on("error", () => {});
  return new BullMQAdapter(queue, { readOnlyMode: true });
});

const serverAdapter = new ExpressAdapter();
createBullBoard({ queues, serverAdapter });
const app = express();
app.use("/", serverAdapter.getRouter());
const listener = app.listen(0, "127.0.0.1", () => console.log(listener.address().port));
process.on("SIGTERM", () => process.exit(0));
