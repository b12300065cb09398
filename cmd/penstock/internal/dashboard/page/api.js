// The admin API. A token is kept in this tab's session only.

const kept = 'penstock-token';

export const token = {
  get: () => sessionStorage.getItem(kept),
  set: (t) => sessionStorage.setItem(kept, t),
  forget: () => sessionStorage.removeItem(kept),
};

// Problem is an answer that is no success; status 0: there was no answer.
export class Problem extends Error {
  constructor(status, detail, allowed) {
    super(detail);
    this.status = status;
    this.allowed = allowed;
  }

  line() {
    return this.message + (this.allowed ? '; allowed: ' + this.allowed : '');
  }
}

async function open(method, path, body, signal) {
  const headers = {};
  if (token.get()) headers.Authorization = 'Bearer ' + token.get();
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let resp;
  try {
    resp = await fetch(path, {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'omit', redirect: 'error', cache: 'no-store',
    });
  } catch (err) {
    throw new Problem(0, 'no answer');
  }
  if (resp.ok) return resp;
  let p = {};
  try {
    p = await resp.json();
  } catch (err) { /* whoever answered was not the daemon: the status must do */ }
  throw new Problem(resp.status, p.detail || 'it answers ' + resp.status, p.allowed);
}

// ask returns the JSON of an answer, or throws a Problem.
export async function ask(method, path, body) {
  const resp = await open(method, path, body, AbortSignal.timeout(30000));
  try {
    return await resp.json();
  } catch (err) {
    throw new Problem(0, 'it broke off its answer');
  }
}

export const get = (path) => ask('GET', path);

// stream gives each sample of /v1/stream to each, until the daemon ends it or is
// silent for longer than patience, in ms; then it throws a Problem.
export async function stream(each, patience) {
  const stop = new AbortController();
  let timer = setTimeout(() => stop.abort(), patience);
  try {
    const resp = await open('GET', '/v1/stream', undefined, stop.signal);
    const reader = resp.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const {value, done} = await reader.read().catch(() => ({done: true}));
      if (done) throw new Problem(0, 'its stream has ended');
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), patience);
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      for (const event of events) if (event.startsWith('data: ')) each(JSON.parse(event.slice(6)));
    }
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}
