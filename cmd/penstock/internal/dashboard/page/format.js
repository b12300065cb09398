// Numbers as people read them. Sizes are those of the configuration and the commands: 1 KiB is 1024 bytes.

const whole = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});

export const count = (n) => whole.format(n);

// short is a number with three digits that count, and a prefix: 12.3 k.
function short(n, prefixes, base = 1000) {
  let i = 0;
  while (n >= base - 0.5 && i < prefixes.length - 1) {
    n /= base;
    i++;
  }
  const digits = i === 0 && Number.isInteger(n) || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2;
  return n.toFixed(digits) + '\u00a0' + prefixes[i];
}

const sizes = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

// rounds are steps of an axis of sizes.
export const rounds = Array.from({length: 60}, (_, i) => 2 ** i);

export const bytes = (n) => short(n, sizes, 1024);
export const rate = (n) => bytes(n < 1 ? 0 : Math.round(n)) + '/s';
export const exact = (n) => count(n) + ' bytes';

// each is so many a second.
export const each = (n) => (n === 0 ? '0' : n < 10 ? n.toFixed(1) : n < 10000 ? count(n) : short(n, ['', 'k', 'M', 'G'])).trim() + '/s';

export const percent = (share) => (share * 100).toFixed(share < 0.0995 && share > 0 ? 1 : 0) + '\u00a0%';

// span is a length of time, in seconds: 120 µs, 3.4 ms, 12 s, 4 min 10 s, 3 h 5 min, 2 d 7 h.
export function span(s) {
  const of = (n, unit, m, small) => n + '\u00a0' + unit + (m ? '\u00a0' + m + '\u00a0' + small : '');
  if (s === 0) return of(0, 's');
  if (s < 0.0009995) return of(Math.round(s * 1e6), 'µs');
  if (s < 0.9995) return of(+(s * 1e3).toPrecision(3), 'ms');
  if (s < 9.95) return of(s.toFixed(1), 's');
  if (s < 59.5) return of(Math.round(s), 's');
  s = Math.round(s);
  if (s < 3600) return of(Math.floor(s / 60), 'min', s % 60, 's');
  const m = Math.floor(s / 60);
  if (m < 1440) return of(Math.floor(m / 60), 'h', m % 60, 'min');
  return of(Math.floor(m / 1440), 'd', Math.floor(m / 60) % 24, 'h');
}

// minute is the time of day, of a Unix time in seconds.
export const minute = (t) => new Date(t * 1000).toLocaleTimeString('en-GB', {hour: '2-digit', minute: '2-digit'});

export const second = (t) => new Date(t * 1000).toLocaleTimeString('en-GB');

// moment is a time of the API: the time of day, with the date if it is not today.
export function moment(rfc3339) {
  const t = new Date(rfc3339);
  const day = t.toDateString() === new Date().toDateString() ? '' : t.toLocaleDateString('sv-SE') + ' ';
  return day + t.toLocaleTimeString('en-GB');
}
