package admin

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// route is one method and path, the access that it requires, and its handler. If the
// handler returns an error, it is answered as a problem; the handler must not have written
// anything then.
type route struct {
	method, path string
	need         access
	body         int64 // maximum size in bytes
	do           func(*Server, http.ResponseWriter, *http.Request) error
}

// routes is the whole API. docs/api/openapi.yaml describes it; a test compares them.
var routes = []route{
	{"GET", "/healthz", open, 0, (*Server).healthz},
	{"GET", "/readyz", read, 0, (*Server).readyz},
	{"GET", "/metrics", read, 0, (*Server).metrics},
	{"GET", "/v1/status", read, 0, (*Server).status},
	{"GET", "/v1/stream", read, 0, (*Server).serveStream},
	{"GET", "/v1/bans", read, 0, (*Server).bans},
	{"POST", "/v1/bans", full, maxBody, (*Server).ban},
	{"DELETE", "/v1/bans/{network}", full, 0, (*Server).unban},
	{"GET", "/v1/lists", read, 0, (*Server).lists},
	{"GET", "/v1/config", read, 0, (*Server).runningConfig},
	{"GET", "/v1/config/diff", read, 0, (*Server).fileDiff},
	{"POST", "/v1/config/diff", full, maxConfig, (*Server).diff},
	{"POST", "/v1/reload", full, 0, (*Server).reload},
	{"POST", "/v1/upgrade", full, maxBody, (*Server).upgrade},
	{"GET", "/v1/listeners", read, 0, (*Server).listeners},
	{"PATCH", "/v1/listeners/{listener}/routes/{route}", full, maxBody, (*Server).setSplit},
	{"GET", "/v1/groups", read, 0, (*Server).groups},
	{"GET", "/v1/groups/{group}", read, 0, (*Server).group},
	{"POST", "/v1/groups/{group}/members", full, maxBody, (*Server).addMember},
	{"PATCH", "/v1/groups/{group}/members/{member}", full, maxBody, (*Server).setMember},
	{"DELETE", "/v1/groups/{group}/members/{member}", full, 0, (*Server).removeMember},
	{"GET", "/v1/changes", read, 0, (*Server).memberChanges},
	{"GET", "/v1/flows", read, 0, (*Server).flows},
	{"DELETE", "/v1/flows", full, 0, (*Server).killFlows},
	{"GET", "/v1/ended", read, 0, (*Server).ended},
	{"GET", "/v1/flows/{id}", read, 0, (*Server).flow},
	{"DELETE", "/v1/flows/{id}", full, 0, (*Server).killFlow},
	{"POST", "/v1/captures", full, maxBody, (*Server).capture},
	{"GET", "/v1/events", read, 0, (*Server).events},
	{"GET", "/v1/log", read, 0, (*Server).level},
	{"PUT", "/v1/log", full, maxBody, (*Server).setLevel},
	{"GET", "/v1/drain", read, 0, (*Server).draining},
	{"POST", "/v1/drain", full, 0, (*Server).drain},
	{"GET", "/debug/pprof/{profile}", full, 0, (*Server).profile},
}

// Changing returns the routes that change the daemon, as METHOD PATH.
func Changing() (list []string) {
	for _, r := range routes {
		if r.need == full && r.method != "GET" {
			list = append(list, r.method+" "+r.path)
		}
	}
	return list
}

// handler returns the handler of all routes. It also sets what all answers have in common.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, r := range routes {
		mux.Handle(r.method+" "+r.path, s.guard(r))
		methods[r.path] = append(methods[r.path], r.method)
	}
	for path, allowed := range methods {
		slices.Sort(allowed)
		list := strings.Join(allowed, ", ")
		mux.Handle(path, s.guard(route{need: read, do: func(_ *Server, w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Allow", list)
			return api.NewProblem(http.StatusMethodNotAllowed, r.Method+" "+api.Quote(r.URL.Path), list)
		}}))
	}
	mux.HandleFunc("/", s.page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connOf(r); c != nil {
			c.serve(true)
			defer c.serve(false)
		}
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
		if err := checkHost(r); err != nil {
			fail(w, err)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// guard returns the handler of a route, which checks access before it calls do.
func (s *Server) guard(to route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := checkOrigin(r)
		if err == nil {
			if err = s.authorize(r, to.need); err != nil {
				// A client without the right token loses its connection too.
				w.Header().Set("Connection", "close")
				w.Header().Set("WWW-Authenticate", "Bearer")
			} else if to.need != open {
				err = authenticate(w, r)
			}
		}
		if err == nil {
			r.Body = http.MaxBytesReader(w, r.Body, to.body)
			if to.need == full {
				r = withActor(r)
			}
			err = to.do(s, w, r)
		}
		if err != nil {
			fail(w, err)
		}
	})
}
