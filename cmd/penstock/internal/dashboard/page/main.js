// The page: what the feed says goes to one module for each part.

import {get, token} from './api.js';
import * as configuration from './configuration.js';
import {askToken, tell} from './dialogs.js';
import {attr, say, text} from './dom.js';
import * as ended from './ended.js';
import * as events from './events.js';
import * as flows from './flows.js';
import {moment, span} from './format.js';
import {connect, forget, join} from './link.js';
import * as lists from './lists.js';
import * as map from './map.js';
import * as overview from './overview.js';
import {alive} from './poll.js';
import * as problems from './problems.js';
import * as splits from './splits.js';
import {title} from './title.js';
import * as topology from './topology.js';
import * as traffic from './traffic.js';

const stale = 3000; // ms without a sample, after which nothing is called well any more

const at = (id) => document.getElementById(id);

let heard = 0; // when the last sample came
let seen = ''; // its time
let youngest = -1; // event
let hash = '';

// connection is live, stale (live, without news), gone, locked (it wants a token) or connecting.
function connection(is) {
  if (document.documentElement.dataset.connection === is) return;
  document.documentElement.dataset.connection = is;
  text(at('connection'), {live: 'live', stale: 'no news', gone: 'not reachable', locked: 'token wanted', connecting: 'connecting'}[is]);
  at('gone').hidden = is !== 'gone';
  title({connection: is});
  alive(is === 'live' || is === 'stale');
}

connect((m) => {
  if (m.status) identity(m.status);
  if (m.sample) sample(m.sample);
  if (m.token) {
    token.set(m.token);
    join(m.token);
  }
  if (m.forgotten) {
    token.forget();
    location.reload();
  }
  if (!m.is) return;
  if (m.is === 'gone') {
    if (document.documentElement.dataset.connection !== 'gone') {
      overview.gap();
      problems.gap();
      text(at('state'), 'unknown');
      at('state').dataset.is = 'odd';
    }
    text(at('gone-why'), `(${m.why}). ${seen ? 'What you see is from ' + moment(seen) + '. ' : ''}The next attempt is in ${m.next}\u00a0s.`);
  }
  if (m.is === 'live') heard = performance.now();
  connection(m.is);
  if (m.is === 'locked') locked();
});

async function locked() {
  const wrong = Boolean(token.get());
  token.set(await askToken(wrong));
  join(token.get());
}

// A daemon that hangs closes nothing: the clock notices.
setInterval(() => {
  const is = document.documentElement.dataset.connection;
  if (is === 'live' && performance.now() - heard > stale) connection('stale');
  if (is === 'stale') text(at('connection'), 'no news for ' + Math.round((performance.now() - heard) / 1000) + '\u00a0s');
}, 500);

function sample(s) {
  heard = performance.now();
  seen = s.time;
  connection('live');
  text(at('uptime'), span(Math.floor(s.uptime)));
  state(s.state);
  overview.sample(s);
  problems.sample(s);
  configuration.sample(s);
  if (s.last_event !== youngest || s.config_hash !== hash) {
    youngest = s.last_event;
    hash = s.config_hash;
    // An event may be a reload that failed, which only the status tells. An answer that comes after the connection has
    // gone says nothing about now.
    Promise.all([events.load(youngest), get('/v1/status').then((s) => document.documentElement.dataset.connection === 'gone' || identity(s))]).catch((err) => {
      if (err.status === undefined) throw err;
      youngest = -1; // the next sample tries again
    });
  }
}

function state(is) {
  text(at('state'), is);
  at('state').dataset.is = is === 'ready' ? 'good' : 'odd';
  at('draining').hidden = is !== 'draining';
  title({state: is});
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
  problems.configuration(s.config);
  configuration.show(s.config).then(() => configuration.problem(null), (err) => {
    if (err.status === undefined) throw err;
    configuration.problem(err);
  });
}

// The look: as the system has it, or light, or dark.
const looks = ['system', 'light', 'dark'];

function look() {
  const is = document.documentElement.dataset.look || 'system';
  text(at('look'), {system: 'System look', light: 'Light', dark: 'Dark'}[is]);
  attr(at('look'), 'aria-label', `${at('look').textContent}. Change it.`);
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

at('forget').addEventListener('click', forget);

function failed(err) {
  tell('This page has failed: ' + err.message + '. Load it again.');
}
addEventListener('error', (event) => failed(event.error || event));
addEventListener('unhandledrejection', (event) => failed(event.reason));

look();
overview.start();
problems.start();
map.start();
traffic.start();
splits.start();
flows.start();
ended.start();
lists.start(problems.list);
events.start();
configuration.start();
topology.start((part, err) => say(at(part + '-problem'), err));
join(token.get());
