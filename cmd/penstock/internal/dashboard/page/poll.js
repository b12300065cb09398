// What is asked for again and again, while it can be seen. A listing may walk
// over every flow or member: who takes long is asked seldom. How long that is, is
// the least of the last few times: the others had to wait for something else.

const share = 1 / 50; // of the time that the daemon may be at it for one part of the page
const first = 1000, least = 2000, most = 10000; // ms between two questions

const parts = new Set();
let live = false;

// poll calls load now and then, while the daemon answers and the page is visible;
// problem shows what went wrong, or null. The function that it returns asks at once.
export function poll(load, problem) {
  const part = {
    timer: 0, running: false, again: false, took: [],
    async run() {
      clearTimeout(part.timer);
      part.timer = 0;
      if (!live || document.hidden) return;
      if (part.running) {
        part.again = true;
        return;
      }
      part.running = true;
      const began = performance.now();
      let waited = 0; // of it, what the daemon slept
      try {
        waited = await load() || 0;
        problem(null);
      } catch (err) {
        if (err.status === undefined) throw err;
        if (err.status !== 0 && err.status !== 401) problem(err); // else the connection says so
      } finally {
        part.running = false;
        part.took = [performance.now() - began - waited, ...part.took].slice(0, 5);
        // A rate needs two answers: the first ones are not far apart.
        const wait = part.took.length < 3 ? first : Math.min(Math.max(least, Math.min(...part.took) / share), most);
        part.timer = setTimeout(part.run, part.again ? 0 : wait);
        part.again = false;
      }
    },
  };
  parts.add(part);
  return part.run;
}

// alive says whether the daemon answers.
export function alive(is) {
  if (is === live) return;
  live = is;
  for (const p of parts) p.run();
}

document.addEventListener('visibilitychange', () => parts.forEach((p) => p.run()));
