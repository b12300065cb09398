// The worker that all tabs of this page share: it has one feed per token, so that many tabs
// cost the daemon one stream. A browser opens six connections to one HTTP/1.1 server and
// no more: with a stream each, the seventh tab would wait forever.

import {Feed} from './feed.js';

const feeds = new Map(); // token -> {feed, ports}

// A tab says {join: token}, {leave: true} and {forget: true}.
self.addEventListener('connect', ({ports: [port]}) => {
  let of = null; // the token that the tab has joined with
  const leave = () => {
    const f = feeds.get(of);
    if (!f) return;
    f.ports.delete(port);
    if (f.ports.size === 0) end(of);
  };
  port.addEventListener('message', ({data}) => {
    if (data.forget) {
      const f = feeds.get(of);
      if (!f) return;
      for (const p of f.ports) p.postMessage({forgotten: true});
      return end(of);
    }
    leave();
    of = null;
    if (data.leave) return;
    if (!data.join) {
      const known = [...feeds].find(([key, f]) => key && f.feed.last.is?.is === 'live');
      if (known) return port.postMessage({token: known[0]});
    }
    of = data.join;
    join(of, port);
  });
  port.start();
});

function join(key, port) {
  let f = feeds.get(key);
  if (!f) {
    f = {ports: new Set([port])};
    feeds.set(key, f);
    f.feed = new Feed(key, (message) => {
      for (const p of f.ports) p.postMessage(message);
      if (message.is === 'locked') end(key);
    });
    return;
  }
  f.ports.add(port);
  for (const message of Object.values(f.feed.last)) port.postMessage(message);
}

function end(key) {
  feeds.get(key).feed?.stop();
  feeds.delete(key);
}

// Tabs hear something even when the daemon does not answer, so that they notice if this worker ends.
setInterval(() => {
  for (const f of feeds.values()) for (const p of f.ports) p.postMessage({tick: true});
}, 2000);
