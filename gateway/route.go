package gateway

import (
	"net/http"
	"path"
	"strings"
)

// routes collects handlers by method and path, and answers the rest with the errors of the API.
type routes struct {
	mux     *http.ServeMux
	meters  meters
	allowed map[string][]string
}

// add serves HEAD, too, where the method is GET.
func (r routes) add(method, path string, h http.Handler) {
	if len(r.allowed[path]) == 0 {
		r.mux.HandleFunc(path, r.methodNotAllowed(path))
	}
	r.mux.Handle(method+" "+path, r.meters.count(method, path, h))
	r.allowed[path] = append(r.allowed[path], method)
}

// addOperation serves no HEAD: a translated call has its side effects and its cost whether or not the body is sent.
func (r routes) addOperation(op operation, h http.Handler) {
	r.add(op.verb, op.path, h)
	if op.verb == http.MethodGet {
		r.mux.HandleFunc(http.MethodHead+" "+op.path, r.methodNotAllowed(op.path))
	}
}

func (r routes) methodNotAllowed(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", strings.Join(r.allowed[path], ", "))
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", nil)
	}
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	refuse(w, http.StatusNotFound, "not_found", nil)
}

// plainPath answers a path with empty or dotted segments itself, which http.ServeMux would redirect to another route.
func plainPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := r.URL.EscapedPath()
		if path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/" {
			notFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
