package admin

import (
	"io/fs"
	"net/http"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// pagePolicy allows the dashboard to load its own files and to use its own server, and
// nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page serves the files of the dashboard to everybody: they are the same for all daemons.
// A path that is neither a file nor a route is not found.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "index.html"
	}
	if s.config.Page != nil && (r.Method == "GET" || r.Method == "HEAD") {
		if info, err := fs.Stat(s.config.Page, name); err == nil && info.Mode().IsRegular() {
			w.Header().Set("Content-Security-Policy", pagePolicy)
			http.ServeFileFS(w, r, s.config.Page, name)
			return
		}
	}
	s.guard(route{need: read, do: func(*Server, http.ResponseWriter, *http.Request) error {
		return api.NotFound("route", r.Method+" "+r.URL.Path, "the paths of docs/api/openapi.yaml")
	}}).ServeHTTP(w, r)
}
