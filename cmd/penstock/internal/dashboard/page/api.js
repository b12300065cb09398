// The admin API. A token is kept in the session of this tab only; the worker that the
// tabs share keeps it while one of them is open.

const kept = 'penstock-token';

export const token = {
  get: () => sessionStorage.getItem(kept),
  set: (t) => sessionStorage.setItem(kept, t),
  forget: () => sessionStorage.removeItem(kept),
};

// Problem is an answer other than success; status 0: there was no answer.
export class Problem extends Error {
  constructor(status, detail, allowed, errors) {
    super(detail);
    this.status = status;
    this.allowed = allowed;
    this.errors = errors || [];
  }

  line() {
    return this.message + (this.allowed ? '; allowed: ' + this.allowed : '');
  }
}

async function open(key, method, path, body, signal) {
  const headers = {};
  if (key) headers.Authorization = 'Bearer ' + key;
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
  } catch (err) { /* it was not the daemon that answered: the status must do */ }
  throw new Problem(resp.status, p.detail || 'the answer is ' + resp.status, p.allowed, p.errors);
}

// askAs returns the JSON of an answer to a request with a token, or throws a Problem.
export async function askAs(key, method, path, body, patience = 30000) {
  const resp = await open(key, method, path, body, AbortSignal.timeout(patience));
  try {
    return await resp.json();
  } catch (err) {
    throw new Problem(0, 'the answer broke off');
  }
}

export const ask = (method, path, body) => askAs(token.get(), method, path, body);
export const get = (path) => ask('GET', path);

// stream calls each with each sample of /v1/stream, until the daemon ends it, it is silent
// for longer than patience, in ms, or stop aborts; then it throws a Problem.
export async function stream(key, each, patience, stop) {
  const end = new AbortController();
  const signal = AbortSignal.any([end.signal, stop]);
  let timer = setTimeout(() => end.abort(), patience);
  try {
    const resp = await open(key, 'GET', '/v1/stream', undefined, signal);
    const reader = resp.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const {value, done} = await reader.read().catch(() => ({done: true}));
      if (done) throw new Problem(0, 'its stream has ended');
      clearTimeout(timer);
      timer = setTimeout(() => end.abort(), patience);
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      for (const event of events) if (event.startsWith('data: ')) each(JSON.parse(event.slice(6)));
    }
  } finally {
    clearTimeout(timer);
    end.abort();
  }
}
