//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// chromiumPage is a page beside the file that it fetches, and returns to the program that has started the browser.
const chromiumPage = `<!doctype html><meta charset="utf-8"><title>file</title><script>
(async () => {
	const to = "http://127.0.0.1:" + location.hash.slice(1)
	try {
		const answer = await fetch("/file")
		if (!answer.ok) throw new Error("status " + answer.status)
		await fetch(to + "/file", {method: "POST", mode: "no-cors", body: await answer.arrayBuffer()})
	} catch (e) {
		await fetch(to + "/failed", {method: "POST", mode: "no-cors", body: String(e)})
	}
})()
</script>
`

// chromium is this program as a peer that has a browser load the page of a name, which fetches the file:
//
//	peer chromium PORT CERTIFICATE NAME OUT
func chromium(port, certificate, name, out string) error {
	text, err := os.ReadFile(certificate)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	key := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := errors.New("the file has come")
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
		case r.URL.Path == "/file":
			if err = os.WriteFile(out, b, 0o644); err == nil {
				err = done
			}
		default:
			err = errors.New(string(b))
		}
		cancel(err)
	}))
	_, back, _ := net.SplitHostPort(l.Addr().String())
	at := name + ":" + port
	cmd := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--user-data-dir="+filepath.Join(filepath.Dir(out), "profile"),
		"--origin-to-force-quic-on="+at, "--host-resolver-rules=MAP "+name+" 127.0.0.1", "--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(key[:]),
		"https://"+at+"/page.html#"+back)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the thread that is the browser's parent
	b, err := cmd.CombinedOutput()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, done) {
		return nil
	}
	return fmt.Errorf("chromium: %w\n%s", err, strings.TrimSpace(string(b)))
}
