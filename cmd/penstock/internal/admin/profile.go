package admin

import (
	"net/http"
	"net/http/pprof"
	runtimepprof "runtime/pprof"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// profileTime is how long a profile may take to be made and read.
const profileTime = 2 * time.Minute

// profile serves what go tool pprof and go tool trace ask for: a profile of the
// CPU, an execution trace, or one of runtime/pprof by its name.
func (s *Server) profile(w http.ResponseWriter, r *http.Request) error {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(profileTime))
	name := r.PathValue("profile")
	if name == "profile" || name == "trace" { // of which there is one at a time
		running := &s.profiles
		if name == "trace" {
			running = &s.traces
		}
		if !running.TryLock() {
			w.Header().Set("Retry-After", "30")
			return api.NewProblem(http.StatusConflict, "another "+name+" is under way", "one at a time")
		}
		defer running.Unlock()
	}
	switch {
	case name == "profile":
		pprof.Profile(w, r)
	case name == "trace":
		pprof.Trace(w, r)
	case runtimepprof.Lookup(name) != nil:
		pprof.Handler(name).ServeHTTP(w, r)
	default:
		names := []string{"profile", "trace"}
		for _, p := range runtimepprof.Profiles() {
			names = append(names, p.Name())
		}
		return api.NotFound("profile", name, strings.Join(names, ", "))
	}
	return nil
}
