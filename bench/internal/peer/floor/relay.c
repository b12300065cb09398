// The floor: a TCP relay that only relays. Each thread accepts on its own
// listener, connects to the upstream without blocking, and copies in both
// directions through one buffer, edge-triggered. It has no timeouts, limits,
// counters or log: what another relay costs beyond it is the price of those.
//
//	relay THREADS LISTEN:PORT UPSTREAM:PORT
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BUFFER = 64 << 10, EVENTS = 256, TURN = 16 }; // TURN: reads of one direction before other flows have theirs

struct side {
	struct flow *flow;
	struct side *other;
	char *held; // read here, not yet written to the other side: len bytes from off
	int fd, off, len;
	char hup, ended, done; // the peer announced its end; the end was read; it was passed on
};

struct flow {
	struct side side[2]; // client, upstream
	struct flow *next;   // in the list of ready flows, or of closed ones
	char connected, queued, closed;
};

static struct sockaddr_in listen_addr, upstream_addr;
static __thread int ep;
static __thread char buffer[BUFFER];
static __thread struct flow *ready, *closed;

static void die(const char *what) { perror(what); exit(1); }

static void watch(int fd, void *p, unsigned events) {
	struct epoll_event ev = {.events = events | EPOLLET, .data.ptr = p};
	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev)) die("epoll_ctl");
}

// finish closes both sockets. An event of the same turn may still name the flow, so it is freed after the turn.
static void finish(struct flow *f, int reset) {
	for (int i = 0; i < 2; i++) {
		if (reset) setsockopt(f->side[i].fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
		close(f->side[i].fd);
		free(f->side[i].held);
	}
	f->closed = 1;
	if (!f->queued) { f->next = closed; closed = f; }
}

// pump moves what s received to the other side until one of the two would block. It
// returns 1 if its turn ended first.
static int pump(struct side *s) {
	for (int turn = 0; !s->flow->closed && s->flow->connected && !s->done;) {
		int fd = s->other->fd, n, w;
		if (s->len) {
			if ((w = write(fd, s->held + s->off, s->len)) < 0) {
				if (errno != EAGAIN) finish(s->flow, 1);
				return 0;
			}
			s->off += w, s->len -= w;
		} else if (s->ended) {
			s->done = 1;
			if (s->other->done) finish(s->flow, 0); else shutdown(fd, SHUT_WR);
		} else if (turn++ == TURN) {
			return 1;
		} else if ((n = read(s->fd, buffer, BUFFER)) < 0) {
			if (errno != EAGAIN) finish(s->flow, 1);
			return 0;
		} else if (n == 0) {
			s->ended = 1;
		} else {
			if ((w = write(fd, buffer, n)) < 0) {
				if (errno != EAGAIN) { finish(s->flow, 1); return 0; }
				w = 0;
			}
			if (w < n) { // EPOLLOUT will say when there is room
				if (!s->held && !(s->held = malloc(BUFFER))) die("malloc");
				memcpy(s->held, buffer + w, s->len = n - w);
				s->off = 0;
				return 0;
			}
			if (n < BUFFER && !s->hup) return 0; // there was no more: epoll(7)
		}
	}
	return 0;
}

static void queue(struct flow *f) {
	if (f->closed || f->queued) return;
	f->queued = 1, f->next = ready, ready = f;
}

static void on_event(struct side *s, unsigned events) {
	if (s->flow->closed) return;
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) s->hup = 1;
	int connects = !s->flow->connected && s == &s->flow->side[1] && events & (EPOLLOUT | EPOLLERR | EPOLLHUP);
	if (connects) s->flow->connected = 1;
	int more = connects || s->other->len ? pump(s->other) : 0;
	if (events & ~EPOLLOUT) more |= pump(s);
	if (more) queue(s->flow);
}

static void accept_all(int ln) {
	for (int fd; (fd = accept4(ln, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
		struct flow *f = calloc(1, sizeof *f);
		int up = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (!f || up < 0) die("flow");
		for (int i = 0; i < 2; i++) f->side[i] = (struct side){.flow = f, .other = &f->side[!i], .fd = i ? up : fd};
		setsockopt(up, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); // the client's socket inherits it from the listener
		if (connect(up, (struct sockaddr *)&upstream_addr, sizeof upstream_addr) && errno != EINPROGRESS) {
			finish(f, 1);
			continue;
		}
		watch(up, &f->side[1], EPOLLIN | EPOLLOUT | EPOLLRDHUP);
		watch(fd, &f->side[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP);
	}
}

static void *serve(void *unused) {
	int ln = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(ln, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	setsockopt(ln, SOL_SOCKET, SO_REUSEPORT, &(int){1}, sizeof(int));
	setsockopt(ln, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	if (bind(ln, (struct sockaddr *)&listen_addr, sizeof listen_addr) || listen(ln, 4096)) die("listen");
	if ((ep = epoll_create1(EPOLL_CLOEXEC)) < 0) die("epoll_create1");
	watch(ln, NULL, EPOLLIN);
	for (struct epoll_event ev[EVENTS];;) {
		int n = epoll_wait(ep, ev, EVENTS, ready ? 0 : -1);
		for (int i = 0; i < n; i++)
			if (ev[i].data.ptr) on_event(ev[i].data.ptr, ev[i].events); else accept_all(ln);
		struct flow *f = ready, *next;
		for (ready = NULL; f; f = next) {
			next = f->next, f->queued = 0;
			if (f->closed) { free(f); continue; }
			if (pump(&f->side[0]) | pump(&f->side[1])) queue(f);
		}
		for (; closed; closed = next) { next = closed->next; free(closed); }
	}
	return unused;
}

static struct sockaddr_in parse(char *text) {
	struct sockaddr_in a = {.sin_family = AF_INET};
	char *port = strchr(text, ':');
	if (!port) die(text);
	*port++ = 0;
	a.sin_port = htons(atoi(port));
	if (inet_pton(AF_INET, text, &a.sin_addr) != 1) die(text);
	return a;
}

int main(int argc, char **argv) {
	if (argc != 4) { puts("C, one thread per loop, gcc " __VERSION__); return 0; }
	listen_addr = parse(argv[2]), upstream_addr = parse(argv[3]);
	signal(SIGPIPE, SIG_IGN);
	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	pthread_t t;
	for (int i = atoi(argv[1]); i > 1; i--)
		if (pthread_create(&t, NULL, serve, NULL)) die("pthread_create");
	serve(NULL);
}
