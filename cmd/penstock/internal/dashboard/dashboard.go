// Package dashboard is the page of the admin listener: HTML, CSS and ES modules
// as they are in page, embedded. There is no build step. The page asks its own
// server and nobody else, by the API that docs/api/openapi.yaml describes.
//
// page/main.js passes what comes in to one module for each part of the page. It comes from
// page/feed.js, which runs in a worker that all tabs share (page/worker.js), or in the
// page where the browser has none; page/topology.js asks for listeners and groups. Only
// page/dom.js makes elements, and it sets text as text: names come from clients and files.
//
// The charts are uPlot, in page/uplot with its licence and version;
// renew-uplot brings another one.
package dashboard

import (
	"embed"
	"io/fs"
)

//go:embed page
var files embed.FS

// Files are what the admin listener serves, index.html among them.
func Files() fs.FS {
	page, err := fs.Sub(files, "page")
	if err != nil { // the name is a constant that embed has checked
		panic(err)
	}
	return page
}
