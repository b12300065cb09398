// The way from a tab to the feed: the shared worker, or a feed in the page.

import {Feed} from './feed.js';

const patience = 10000; // ms without a word of the worker

let hear; // what is called with each message
let key = '';
let port = null;
let own = null; // the feed in the page
let heard = 0;
let missed = 0;

// connect calls each with the messages of a feed, and with {token}, another tab's, and {forgotten}.
export function connect(each) {
  hear = each;
  if ('SharedWorker' in self) {
    try {
      const worker = new SharedWorker('worker.js', {type: 'module', name: 'penstock'});
      worker.addEventListener('error', alone);
      port = worker.port;
      port.addEventListener('message', ({data}) => {
        heard = Date.now();
        missed = 0;
        if (port && !data.tick) hear(data);
      });
      port.start();
      setInterval(watch, 1000);
    } catch (err) { /* forbidden here */ }
  }
}

// join begins with a token; empty: none.
export function join(token) {
  key = token || '';
  heard = Date.now();
  if (port) return port.postMessage({join: key});
  own?.stop();
  own = new Feed(key, hear);
}

export function forget() {
  if (port) port.postMessage({forget: true});
  else hear({forgotten: true});
}

// watch goes on without a worker that has ended. After a sleep of the machine the first look is late.
function watch() {
  if (!port || Date.now() - heard < patience) return;
  if (missed++ > 1) alone();
}

function alone() {
  if (!port) return;
  port = null;
  join(key);
}

// A tab that is left, or put aside for the way back, takes no part.
addEventListener('pagehide', () => {
  if (port) port.postMessage({leave: true});
  else own?.stop();
});
addEventListener('pageshow', (event) => {
  if (event.persisted) join(key);
});
