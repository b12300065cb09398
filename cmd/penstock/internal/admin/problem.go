package admin

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// The bounds of a request.
const (
	maxBody   = 1 << 20
	maxConfig = 4 << 20
)

// reply writes v as JSON.
func reply(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)+1))
	w.Write(append(b, '\n')) // if the client is gone, there is nobody to tell
}

// fail writes an error as a problem (RFC 9457). Nothing may have been written before.
func fail(w http.ResponseWriter, err error) {
	var p *api.Problem
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &p):
	case errors.As(err, &big):
		p = api.NewProblem(http.StatusRequestEntityTooLarge, "the body is too long", "at most "+strconv.FormatInt(big.Limit, 10)+" bytes")
	default:
		p = api.NewProblem(http.StatusInternalServerError, err.Error(), "")
	}
	b, err := json.Marshal(p)
	if err != nil { // a problem is strings and numbers
		panic(err)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	w.Write(append(b, '\n'))
}

// bad returns the problem of an invalid request.
func bad(detail, allowed string) *api.Problem {
	return api.NewProblem(http.StatusBadRequest, detail, allowed)
}

// body decodes the body of a request, one JSON value, into v. Unknown fields are an error.
func body(r *http.Request, v any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return api.NewProblem(http.StatusUnsupportedMediaType, "Content-Type: "+api.Quote(r.Header.Get("Content-Type")), "application/json")
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); more == io.EOF {
			return nil
		}
		return bad("data after the JSON object", "one JSON object as described in docs/api/openapi.yaml")
	}
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return err
	}
	return bad("the body: "+err.Error(), "one JSON object as described in docs/api/openapi.yaml")
}
