// A feed keeps one connection to the daemon: a status, then a sample a second for as long
// as the daemon lives, and all over again when it is gone. It runs in the worker that all tabs share or, where there is none, in the page.

import {askAs, stream} from './api.js';

const patience = 8000; // ms without an answer or a sample, after which the daemon counts as gone
const waits = [1, 1, 2, 4, 5]; // s between attempts

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Feed sends messages:
//   {is: 'connecting' | 'live' | 'locked' | 'gone', why, next}  the connection; next: s to the next attempt
//   {status}  what stays the same, at the beginning of a connection
//   {sample}
// locked is the last one: the daemon wants another token.
export class Feed {
  constructor(key, send) {
    this.key = key;
    this.send = send;
    this.over = new AbortController();
    this.last = {}; // of each kind, for those who come later
    this.run();
  }

  tell(message) {
    if (this.over.signal.aborted) return;
    if (message.is) this.last.is = message;
    if (message.status) this.last.status = message;
    if (message.sample) this.last.sample = message;
    this.send(message);
  }

  stop() {
    this.over.abort();
  }

  async run() {
    this.tell({is: 'connecting'});
    for (let failed = 0; !this.over.signal.aborted;) {
      try {
        this.tell({status: await askAs(this.key, 'GET', '/v1/status', undefined, patience)});
        this.tell({is: 'live'});
        failed = 0;
        await stream(this.key, (sample) => this.tell({sample}), patience, this.over.signal);
      } catch (err) {
        if (err.status === undefined) throw err;
        if (err.status === 401) return this.tell({is: 'locked'});
        if (err.status === 503) { // too many streams: a status now and then has the same
          await sleep(2000);
          const s = await askAs(this.key, 'GET', '/v1/status').catch(() => null);
          if (s) this.tell({sample: s});
          continue;
        }
        const wait = waits[Math.min(failed++, waits.length - 1)];
        for (let next = wait; next > 0 && !this.over.signal.aborted; next--) {
          this.tell({is: 'gone', why: err.line(), next});
          await sleep(1000);
        }
      }
    }
  }
}
