// Queues made by the real library: `node seed.mjs URL QUEUES FULL JOBS`. The first FULL queues get JOBS jobs each,
// of several states; the others are there and empty.

import { Queue } from "bullmq";
import { Redis } from "ioredis";

const [url, count, full, jobs] = process.argv.slice(2).map((word, n) => (n ? Number(word) : word));
const connection = new Redis(url, { maxRetriesPerRequest: null });
connection.setMaxListeners(0);

const job = (n) => ({
  name: "mail",
  data: { to: `person-${n}@example.com`, template: "welcome", attempt: n },
  opts: n % 5 === 0 ? { delay: 3600_000 + n } : n % 5 === 1 ? { priority: 1 + (n % 10) } : {},
});

for (let n = 0; n < count; n++) {
  const queue = new Queue(`bench-${n}`, { connection });
  await queue.waitUntilReady();
  if (n < full) await queue.addBulk(Array.from({ length: jobs }, (_, k) => job(k)));
}
await connection.quit();
console.log("seeded");
process.exit(0);
