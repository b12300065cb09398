package testfleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// Kubernetes stands for an API server in tests that cannot wait until a real one is built (make kube does). It follows what Kubernetes
// documents of EndpointSlices: lists by page, watches from a version on, bookmarks, versions that are gone, and tokens.
type Kubernetes struct {
	*fake
	// GoneAsStatus makes a watch of a version that is gone fail with status 410; otherwise it begins, and has an ERROR event. Both are
	// documented.
	GoneAsStatus bool

	slices    map[string]map[string]any // by namespace/name
	events    []kubeEvent
	version   int
	compacted int // versions below are gone
	tokens    []string
	closed    int // of how often watches were closed
	bookmarks int
}

type kubeEvent struct {
	version   int
	kind      string
	namespace string
	object    map[string]any
}

// NewKubernetes starts an API server without EndpointSlices, with TLS. Without tokens everybody may ask.
func NewKubernetes(tb testing.TB, tokens ...string) *Kubernetes {
	return NewMemoryKubernetes(tb, nil, tokens...)
}

// NewMemoryKubernetes starts an API server in a network in memory; nil: the real one.
func NewMemoryKubernetes(tb testing.TB, network *testnet.Network, tokens ...string) *Kubernetes {
	k := &Kubernetes{slices: map[string]map[string]any{}, version: 100, tokens: tokens}
	k.fake = newFake(tb, network, true, k.handle)
	return k
}

// Put adds or replaces an EndpointSlice. body is its JSON without metadata.
func (k *Kubernetes) Put(namespace, name, service, body string) {
	k.tb.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(body), &object); err != nil {
		k.tb.Fatalf("%v: %s", err, body)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version++
	object["metadata"] = map[string]any{
		"name": name, "namespace": namespace, "resourceVersion": strconv.Itoa(k.version), "uid": "7",
		"labels":        map[string]string{"kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
		"managedFields": []any{map[string]any{"manager": "test", "fieldsV1": map[string]any{"f:endpoints": map[string]any{}}}},
	}
	kind := "ADDED"
	if k.slices[namespace+"/"+name] != nil {
		kind = "MODIFIED"
	}
	k.slices[namespace+"/"+name] = object
	k.add(kind, namespace, object)
}

// Delete removes an EndpointSlice.
func (k *Kubernetes) Delete(namespace, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	object := k.slices[namespace+"/"+name]
	delete(k.slices, namespace+"/"+name)
	k.version++
	object["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(k.version)
	k.add("DELETED", namespace, object)
}

func (k *Kubernetes) add(kind, namespace string, object map[string]any) {
	b, _ := json.Marshal(object)
	var copied map[string]any
	json.Unmarshal(b, &copied)
	copied["kind"], copied["apiVersion"] = "EndpointSlice", "discovery.k8s.io/v1"
	k.events = append(k.events, kubeEvent{k.version, kind, namespace, copied})
	k.touch()
}

// Bookmark advances the version without a change of EndpointSlices, and sends bookmarks.
func (k *Kubernetes) Bookmark() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version += 10
	k.bookmarks++
	k.touch()
}

// Compact forgets all versions before the present one.
func (k *Kubernetes) Compact() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version++
	k.compacted = k.version
	k.touch()
}

// CloseWatches ends all watches, as a server does after their timeoutSeconds.
func (k *Kubernetes) CloseWatches() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed++
	k.touch()
}

// SetTokens replaces the tokens that are accepted. Watches go on, as in Kubernetes.
func (k *Kubernetes) SetTokens(tokens ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens = tokens
}

func (k *Kubernetes) handle(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.tokens) > 0 && !slices.Contains(k.tokens, token) {
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/apis/discovery.k8s.io/v1/namespaces/")
	namespace, resource, _ := strings.Cut(rest, "/")
	q := r.URL.Query()
	service, labelled := strings.CutPrefix(q.Get("labelSelector"), "kubernetes.io/service-name=")
	if !ok || resource != "endpointslices" || !labelled {
		status(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if q.Get("watch") == "true" {
		k.watch(w, r, namespace, service)
		return
	}
	k.list(w, r, namespace, service)
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(statusObject(code, reason, message))
}

func statusObject(code int, reason, message string) map[string]any {
	return map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "message": message, "reason": reason, "code": code}
}

func fitsService(object map[string]any, service string) bool {
	return fmt.Sprint(object["metadata"].(map[string]any)["labels"]) != "" && labelOf(object) == service
}

func labelOf(object map[string]any) string {
	switch labels := object["metadata"].(map[string]any)["labels"].(type) {
	case map[string]string:
		return labels["kubernetes.io/service-name"]
	case map[string]any:
		return labels["kubernetes.io/service-name"].(string)
	}
	return ""
}

// list answers a list. The caller holds k.mu.
func (k *Kubernetes) list(w http.ResponseWriter, r *http.Request, namespace, service string) {
	q := r.URL.Query()
	version, from := k.version, 0
	if token := q.Get("continue"); token != "" {
		if _, err := fmt.Sscanf(token, "%d-%d", &version, &from); err != nil || version < k.compacted {
			status(w, http.StatusGone, "Expired", "The provided continue parameter is too old to display a consistent list result.")
			return
		}
	}
	var keys []string
	for key, object := range k.slices {
		if strings.HasPrefix(key, namespace+"/") && fitsService(object, service) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	items := []any{}
	meta := map[string]any{"resourceVersion": strconv.Itoa(version)}
	limit, _ := strconv.Atoi(q.Get("limit"))
	for i, key := range keys {
		if i < from {
			continue
		}
		if limit > 0 && len(items) == limit {
			meta["continue"] = fmt.Sprintf("%d-%d", version, i)
			meta["remainingItemCount"] = len(keys) - i
			break
		}
		items = append(items, k.slices[key])
	}
	json.NewEncoder(w).Encode(map[string]any{"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": meta, "items": items})
}

// watch answers a watch until it is closed or its timeoutSeconds have passed. The caller holds k.mu.
func (k *Kubernetes) watch(w http.ResponseWriter, r *http.Request, namespace, service string) {
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	late := time.After(time.Duration(seconds) * time.Second)
	if from < k.compacted && k.GoneAsStatus {
		status(w, http.StatusGone, "Expired", fmt.Sprintf("too old resource version: %d (%d)", from, k.compacted))
		return
	}
	flush := http.NewResponseController(w).Flush
	send := func(kind string, object map[string]any) {
		json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
	}
	closed, bookmarks := k.closed, k.bookmarks
	for {
		if from < k.compacted {
			send("ERROR", statusObject(http.StatusGone, "Expired", fmt.Sprintf("too old resource version: %d (%d)", from, k.compacted)))
			return
		}
		for _, e := range k.events {
			if e.version > from && e.namespace == namespace && labelOf(e.object) == service {
				send(e.kind, e.object)
				from = e.version
			}
		}
		if bookmarks != k.bookmarks && q.Get("allowWatchBookmarks") == "true" {
			bookmarks, from = k.bookmarks, k.version
			send("BOOKMARK", map[string]any{
				"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": map[string]any{"resourceVersion": strconv.Itoa(k.version)},
				"endpoints": nil, "ports": nil, "addressType": "",
			})
		}
		if closed != k.closed || k.fault != nil {
			return
		}
		changed := k.changed
		k.mu.Unlock()
		flush()
		select {
		case <-changed:
		case <-late:
			closed = -1
		case <-r.Context().Done():
			closed = -1
		}
		k.mu.Lock()
	}
}
