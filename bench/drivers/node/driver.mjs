// Drives redlock, as bench/README.md says of all drivers.

import fs from "node:fs";
import readline from "node:readline";
import { setImmediate, setTimeout } from "node:timers/promises";
import { parseArgs } from "node:util";
import Redis from "ioredis";
import Redlock, { ExecutionError } from "redlock";

// How long a lock lives that has to be told.
const TTL = 30_000;
// Bytes from one key's record to the next.
const SLOT = 64;
// A broken lock asks nobody for one waiter of so many.
const BROKEN_ONE_OF = 8;
const WARMING = 0;
const MEASURING = 1;
const OVER = 2;

// What the driver is asked for, in the words of the command line.
const names = ["peer", "url", "work", "record", "tasks", "first", "hold-us", "pause-us", "warm-ms",
  "measured-ms", "ttl-ms", "broken"];
const args = parseArgs({
  options: Object.fromEntries(names.map((name) => [name, { type: "string" }])),
}).values;
const number = (name) => Number(args[name]);

// A line for the runner.
const say = (event) => fs.writeSync(1, JSON.stringify(event) + "\n");

// Nanoseconds of the clock that all processes of this machine share.
const now = () => Number(process.hrtime.bigint());

// What a lock protects: a number in a file, read on entering and written on leaving. Whoever
// overlaps with another overwrites what the other counted: the number is then lower than the
// number of acquisitions, which the runner compares.
class Records {
  constructor(path) {
    this.file = fs.openSync(path, "r+");
    this.bytes = Buffer.alloc(24);
  }

  enter(slot, who) {
    fs.readSync(this.file, this.bytes, 0, 24, slot * SLOT);
    const [count, last, left] = [0, 8, 16].map((at) => Number(this.bytes.readBigUInt64LE(at)));
    const entered = now();
    const other = last !== 0 && last !== who + 1;
    return { count, entered, handedOver: other ? Math.max(entered - left, 0) : null };
  }

  // Returns how long it was held.
  leave(slot, who, inside) {
    const left = now();
    [inside.count + 1, who + 1, left].forEach((value, at) =>
      this.bytes.writeBigUInt64LE(BigInt(value), at * 8),
    );
    fs.writeSync(this.file, this.bytes, 0, 24, slot * SLOT);
    return left - inside.entered;
  }
}

// Times by powers of two, each in 32 parts.
class Histogram {
  counts = [];

  add(nanos) {
    const bucket = Math.floor(Math.log2(Math.max(nanos, 1)) * 32);
    this.counts[bucket] = (this.counts[bucket] ?? 0) + 1;
  }

  shown() {
    return Object.entries(this.counts).map(([bucket, count]) => [Number(bucket), count]);
  }
}

const seen = {
  acquired: 0, grants: 0, handoffs: 0, held: 0, gaveUp: 0, errors: 0, firstError: null, inside: 0,
  acquire: new Histogram(), handoff: new Histogram(),
};
let phase = WARMING;

const fail = (error) => {
  seen.errors += 1;
  seen.firstError ??= String(error);
};

async function takeTurns(redlock, records, task, turns) {
  const oneKey = args.work === "key";
  const slot = oneKey ? 0 : task;
  const who = number("first") + task;
  const [hold, pause] = [number("hold-us") / 1e3, number("pause-us") / 1e3];
  const asks = !(number("broken") && (who + 1) % BROKEN_ONE_OF === 0);
  while (phase !== OVER) {
    const asked = now();
    let lock = null;
    if (asks) {
      try {
        lock = await redlock.acquire([`bench-${slot}`], number("ttl-ms") || TTL);
      } catch (error) {
        // Its attempts are used up: it asks again.
        if (error instanceof ExecutionError) seen.gaveUp += 1;
        else fail(error);
        continue;
      }
    }
    if (phase === OVER) return;
    seen.inside += 1;
    const measured = phase === MEASURING;
    const inside = records.enter(slot, who);
    if (hold > 0) await setTimeout(hold);
    // Others may come in here, if the lock lets them.
    else if (oneKey) await setImmediate();
    const held = records.leave(slot, who, inside);
    seen.acquired += 1;
    seen.inside -= 1;
    if (measured) {
      turns[task] += 1;
      seen.grants += 1;
      seen.held += held;
      seen.acquire.add(inside.entered - asked);
      if (inside.handedOver !== null) {
        seen.handoffs += 1;
        seen.handoff.add(inside.handedOver);
      }
    }
    try {
      await lock?.release();
    } catch (error) {
      fail(error);
    }
    if (pause > 0) await setTimeout(pause);
  }
}

async function run(redlock, lines) {
  const records = new Records(args.record);
  const turns = Array(number("tasks")).fill(0);
  await lines.next();
  for (const task of turns.keys()) takeTurns(redlock, records, task, turns).catch(fail);
  await setTimeout(number("warm-ms"));
  say({ event: "measuring" });
  const [started, cpu] = [now(), process.cpuUsage()];
  phase = MEASURING;
  await setTimeout(number("measured-ms"));
  phase = OVER;
  const [taken, used] = [now() - started, process.cpuUsage(cpu)];
  const patience = now() + 5e9;
  while (seen.inside > 0 && now() < patience) await setTimeout(1);
  say({
    event: "result",
    seconds: taken / 1e9,
    cpu_ns: (used.user + used.system) * 1e3,
    acquired: seen.acquired,
    grants: seen.grants,
    handoffs: seen.handoffs,
    held_ns: seen.held,
    gave_up: seen.gaveUp,
    errors: seen.errors,
    first_error: seen.firstError,
    turns,
    acquire: seen.acquire.shown(),
    handoff: seen.handoff.shown(),
  });
}

// One lock, taken and released on command: its process, or the one before it, is killed.
async function standBy(redlock, lines) {
  const records = new Records(args.record);
  const who = number("first");
  let lock = null;
  let inside = null;
  for await (const line of lines) {
    if (line === "acquire") {
      while (lock === null) {
        lock = await redlock.acquire(["bench-0"], number("ttl-ms")).catch((error) => {
          if (!(error instanceof ExecutionError)) throw error;
          return null;
        });
      }
      inside = records.enter(0, who);
      say({ event: "acquired", at_ns: inside.entered });
    } else if (line === "release") {
      records.leave(0, who, inside);
      const at = now();
      await lock.release();
      say({ event: "released", at_ns: at });
    }
  }
}

const redlock = new Redlock([new Redis(args.url)]);
// Without a listener an error event would end the process; the calls fail as well.
redlock.on("error", () => {});
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
// Scripts are loaded, connections made.
await (await redlock.acquire(["bench-warm-up"], TTL)).release();
say({ event: "ready" });
await (args.work === "stand-by" ? standBy : run)(redlock, lines);
// Whoever still waits for a lock is not waited for.
process.exit(0);
