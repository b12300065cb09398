package admin

import (
	"net/http"
	"net/http/pprof"
	runtimepprof "runtime/pprof"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// profileTime bounds the time to make and read a profile.
const profileTime = 2 * time.Minute

// profile serves go tool pprof and go tool trace: a CPU profile, an execution trace, or
// another profile of runtime/pprof by name.
func (s *Server) profile(w http.ResponseWriter, r *http.Request) error {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(profileTime))
	name := r.PathValue("profile")
	if name == "profile" || name == "trace" { // only one of each at a time
		running := &s.profiles
		if name == "trace" {
			running = &s.traces
		}
		if !running.TryLock() {
			w.Header().Set("Retry-After", "30")
			return api.NewProblem(http.StatusConflict, "another "+name+" is in progress", "one at a time")
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
