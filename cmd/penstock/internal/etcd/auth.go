package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// token returns the token of the configured user, and gets one if there is none; empty: no user is configured.
func (c *Client) token(ctx context.Context, n int) (string, error) {
	if c.cfg.Remote.UserFile == "" {
		return "", nil
	}
	c.auth.Lock()
	defer c.auth.Unlock()
	if c.auth.token != "" {
		return c.auth.token, nil
	}
	user, password, err := c.remote.User()
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]string{"name": user, "password": password})
	if err != nil {
		return "", err
	}
	var out struct {
		Token string `json:"token"`
	}
	if err := c.post(ctx, n, "/v3/auth/authenticate", "", body, &out); err != nil {
		return "", fmt.Errorf("user %s: %w", user, c.withServer(n, err))
	}
	if out.Token == "" {
		return "", fmt.Errorf("user %s: %s answers without a token", user, c.remote.Servers()[n])
	}
	c.auth.token, c.auth.since = out.Token, time.Now()
	return out.Token, nil
}

// badToken reports whether err may mean that the token is no longer good: it has expired, the server does not
// know it because it was restarted, or users and roles have changed since. The token is forgotten then. The
// codes are also those of other errors, so that the caller tries once more and not for ever.
func (c *Client) badToken(err error, token string) bool {
	var e *Error
	if token == "" || !errors.As(err, &e) || e.Code != codeUnauthenticated && e.Code != codeInvalidArgument {
		return false
	}
	c.forget(token)
	return true
}

// forget forgets a token, unless there is a newer one.
func (c *Client) forget(token string) {
	c.auth.Lock()
	defer c.auth.Unlock()
	if c.auth.token == token {
		c.auth.token = ""
	}
}
