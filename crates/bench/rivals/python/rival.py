"""Locks of Python, measured: one JSON task as the last argument, one JSON line of figures on standard output."""

import json
import sys
import threading
import time

import redis
import redis_lock

WARM = 0.25
REST = 0.005
TTL = 30
COLD = 10


def make_lock(task, client, name):
    if task["who"] == "redis-py":
        return redis.lock.Lock(client, f"redis-py/{name}", timeout=TTL)
    return redis_lock.Lock(client, f"python/{name}", expire=TTL)


def connect(task):
    host, port = task["hosts"][0].split(":")
    return redis.Redis(host=host, port=int(port))


def together(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def pairs(task):
    start = time.monotonic() + WARM
    end = start + task["millis"] / 1_000
    counts = [0] * task["size"]
    failures = []

    def loop(at):
        try:
            client = connect(task)
            now = time.monotonic()
            while now < end:
                lock = make_lock(task, client, at)
                if not lock.acquire(blocking=False):
                    raise RuntimeError("the lock was taken")
                lock.release()
                now = time.monotonic()
                counts[at] += start <= now < end
        except Exception as error:  # told below, as the reason why there is no figure
            failures.append(error)

    together([threading.Thread(target=loop, args=(at,)) for at in range(task["size"])])
    if failures:
        raise failures[0]
    return {"per_second": sum(counts) / (task["millis"] / 1_000)}


def hand_over(task):
    wanted = COLD + max(20, task["millis"] * 150 // 1_000)
    if task["who"] == "redis-py":
        # It asks every 100 ms: more would take minutes.
        wanted = COLD + 20
    took, released, failures = [], [None], []

    def loop():
        try:
            client = connect(task)
            while len(took) < wanted:
                lock = make_lock(task, client, "handed-over")
                lock.acquire(blocking=True)
                now = time.monotonic()
                since, released[0] = released[0], None
                if since is not None:
                    took.append((now - since) * 1e6)
                time.sleep(REST)
                released[0] = since = time.monotonic()
                lock.release()
                # Without an order, whoever has just released would take it again at once, and nothing would be handed on.
                while released[0] is since and len(took) < wanted:
                    time.sleep(REST)
        except Exception as error:  # as above
            failures.append(error)

    together([threading.Thread(target=loop, daemon=True) for _ in range(task["size"] + 1)])
    if failures:
        raise failures[0]
    took = sorted(took[COLD:wanted])
    return {"p50_us": took[len(took) // 2], "p99_us": took[(len(took) - 1) * 99 // 100]}


def main():
    task = json.loads(sys.argv[-1])
    known = {"pairs": pairs, "hand-over": hand_over}
    if task["what"] not in known:
        sys.exit(f"{task['who']} does not do {task['what']}")
    print(json.dumps(known[task["what"]](task)))


if __name__ == "__main__":
    main()
