// Workers moved by hand: each step of a job's life is one command, taken at the moment that a test chooses.
//
// A library brings `hand(where, options)`: {take, finish, fail, renew, sweep, token, close} in its own words.

const REFUSALS = /Missing lock|Missing key|Lock mismatch|not in the active state|could not renew/i;
const clock = new Int32Array(new SharedArrayBuffer(4));

// Nothing else runs in this process meanwhile: fractions of a millisecond count.
const rest = (ms) => ms > 0 && Atomics.wait(clock, 0, 0, ms);

export function hands(library) {
  const open = new Map();

  const steps = {
    take: async (hand) => {
      const job = await hand.take();
      if (!job) return null;
      hand.jobs.set(String(job.id), job);
      return { id: String(job.id), doomed: job.deferredFailure ?? "" };
    },
    finish: (hand, { job }) => refusal(() => hand.finish(held(hand, job))),
    fail: (hand, { job, reason }) => refusal(() => hand.fail(held(hand, job), new Error(reason))),
    renew: (hand, { job, ms }) => renewed(() => hand.renew(held(hand, job), ms)),
    sweep: (hand) => hand.sweep(),
    token: (hand, { job }) => hand.token(held(hand, job)),
  };

  return {
    hand: async ({ hand, queue, options }) => {
      open.set(hand, { jobs: new Map(), ...(await library.hand(queue, options)) });
    },
    step: ({ hand, step, after, ...more }) => {
      rest(after);
      return steps[step](open.get(hand), more);
    },
    closeHands: async () => {
      const closing = [...open.values()].map((hand) => hand.close());
      open.clear();
      await Promise.all(closing);
    },
  };
}

function held(hand, id) {
  if (!hand.jobs.has(id)) throw new Error(`this hand never took job ${id}`);
  return hand.jobs.get(id);
}

// "" when the library did it, else why it would not.
async function refusal(act) {
  try {
    await act();
    return "";
  } catch (error) {
    if (!REFUSALS.test(error.message)) throw error;
    return error.message;
  }
}

async function renewed(act) {
  try {
    return Boolean(await act());
  } catch (error) {
    if (!REFUSALS.test(error.message)) throw error;
    return false;
  }
}

// What one run of the library's own check told: ids that went back, and ids that it failed.
export async function swept(emitter, sweep) {
  const told = { stalled: [], failed: [] };
  const heard = Object.keys(told).map((event) => [event, (job) => told[event].push(String(job?.id ?? job))]);
  for (const [event, hear] of heard) emitter.on(event, hear);
  try {
    await sweep();
  } finally {
    for (const [event, hear] of heard) emitter.off(event, hear);
  }
  return told;
}
