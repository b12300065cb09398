// The connection: a status, then a sample a second for as long as the daemon
// lives, and all over again when it is gone.

import {get, stream, token} from './api.js';
import {askToken, tell} from './dialogs.js';
import {attr, el, keyed, text} from './dom.js';
import {moment, span} from './format.js';
import * as events from './events.js';
import * as flows from './flows.js';
import * as overview from './overview.js';
import {alive} from './poll.js';
import * as traffic from './traffic.js';

const patience = 10000; // ms without a sample, after which the daemon is held to be gone
const waits = [1, 1, 2, 4, 5]; // s between attempts

const at = (id) => document.getElementById(id);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// connection is live, gone, locked (it wants a token) or connecting.
function connection(is) {
  document.documentElement.dataset.connection = is;
  text(at('connection'), {live: 'live', gone: 'not reachable', locked: 'token wanted', connecting: 'connecting'}[is]);
  at('gone').hidden = is !== 'gone';
  alive(is === 'live');
}

async function run() {
  connection('connecting');
  for (let failed = 0; ;) {
    try {
      identity(await get('/v1/status'));
      connection('live');
      failed = 0;
      await stream(sample, patience);
    } catch (err) {
      if (err.status === undefined) throw err;
      if (err.status === 401) {
        connection('locked');
        token.set(await askToken(Boolean(token.get())));
        continue;
      }
      if (err.status === 503) { // too many streams: what follows is a sample now and then
        const s = await get('/v1/status').catch(() => null);
        if (s) sample(s);
        await sleep(2000);
        continue;
      }
      overview.gap();
      connection('gone');
      const wait = waits[Math.min(failed++, waits.length - 1)];
      for (let left = wait; left > 0; left--) {
        text(at('gone-why'), `(${err.line()}). ${seen ? 'What you see is of ' + moment(seen) + '. ' : ''}The next attempt is in ${left}\u00a0s.`);
        await sleep(1000);
      }
    }
  }
}

let seen = ''; // the time of the last sample
let youngest = -1; // event
let hash = '';

function sample(s) {
  seen = s.time;
  text(at('uptime'), span(Math.floor(s.uptime)));
  state(s.state);
  overview.sample(s);
  if (s.last_event !== youngest || s.config_hash !== hash) {
    youngest = s.last_event;
    hash = s.config_hash;
    // An event may be a reload that failed, which only the status tells.
    Promise.all([events.load(youngest), get('/v1/status').then(identity)]).catch((err) => {
      if (err.status === undefined) throw err;
      youngest = -1; // the next sample tries again
    });
  }
}

function state(is) {
  text(at('state'), is);
  at('state').dataset.is = is === 'ready' ? 'good' : 'odd';
  at('draining').hidden = is !== 'draining';
}

// identity is what stays the same while the daemon runs, and its configuration.
function identity(s) {
  text(at('version'), s.version);
  text(at('uptime'), span(Math.floor(s.uptime)));
  state(s.state);
  text(at('hash'), s.config.hash.slice(0, 12));
  attr(at('hash'), 'title', `SHA-256 ${s.config.hash}\nof ${s.config.source || 'the command line'}\nsince ${moment(s.config.loaded)}`);
  text(at('source'), s.config.source || 'command line');
  document.documentElement.dataset.access = s.access;
  at('read-only').hidden = s.access === 'full';
  at('forget').hidden = !token.get();
  const failed = s.config.failed;
  at('reload').hidden = !failed;
  if (failed) {
    text(at('reload-time'), moment(failed.time));
    keyed(at('reload-errors'), failed.errors, (e) => JSON.stringify(e), (e) => el('li', {},
      el('code', {}, [e.source, e.line, e.column].filter(Boolean).join(':')), ' ', e.message, e.allowed ? el('span.quiet', {}, ' – allowed: ' + e.allowed) : null), () => {});
  }
}

// The look: as the system has it, or light, or dark.
const looks = ['system', 'light', 'dark'];

function look() {
  const is = document.documentElement.dataset.look || 'system';
  text(at('look'), {system: 'System look', light: 'Light', dark: 'Dark'}[is]);
  attr(at('look'), 'aria-label', `Look: ${is}. Change it.`);
  return is;
}

at('look').addEventListener('click', () => {
  const next = looks[(looks.indexOf(look()) + 1) % looks.length];
  if (next === 'system') {
    localStorage.removeItem('penstock-look');
    delete document.documentElement.dataset.look;
  } else {
    localStorage.setItem('penstock-look', next);
    document.documentElement.dataset.look = next;
  }
  look();
  overview.redraw();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', overview.redraw);

at('forget').addEventListener('click', () => {
  token.forget();
  location.reload();
});

look();
overview.start();
flows.start();
traffic.start();
events.start();
run().catch((err) => {
  tell('This page has failed: ' + err.message + '. Load it again.');
  throw err;
});
