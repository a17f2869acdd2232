// node-redlock, measured: one JSON task as the last argument, one JSON line of figures on standard output.
import { createRequire } from "node:module";

// The package's own entry for `import` misses its types only; `require` works in every version.
const require = createRequire(import.meta.url);
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const WARM_MS = 250;
const TTL_MS = 30_000;

const task = JSON.parse(process.argv.at(-1));

async function pairs(redlock) {
  const from = performance.now() + WARM_MS;
  const until = from + task.millis;
  let done = 0;
  async function loop(at) {
    let now = performance.now();
    while (now < until) {
      const lock = await redlock.acquire([`redlock/${at}`], TTL_MS);
      await lock.release();
      now = performance.now();
      if (now >= from && now < until) done += 1;
    }
  }
  await Promise.all(Array.from({ length: task.size }, (_, at) => loop(at)));
  return { per_second: done / (task.millis / 1_000) };
}

const clients = task.hosts.map((host) => {
  const [name, port] = host.split(":");
  return new Redis({ host: name, port: Number(port) });
});
const redlock = new Redlock(clients, { retryCount: 0, automaticExtensionThreshold: 500 });
redlock.on("error", () => {});

if (task.what !== "pairs" && task.what !== "stalled") {
  console.error(`node-redlock does not do ${task.what}`);
  process.exit(1);
}
console.log(JSON.stringify(await pairs(redlock)));
process.exit(0);
