package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"strings"
)

const allowedKeys = "allowed: a key of RSA, ECDSA or Ed25519 as PKCS#8, PKCS#1 or SEC 1, without a password"

// parseKey returns the private key among the blocks of a file.
func parseKey(blocks []block) (key crypto.Signer, line int, err *lineError) {
	for _, b := range blocks {
		if !strings.HasSuffix(b.Type, "PRIVATE KEY") {
			continue
		}
		if key != nil {
			return nil, 0, lineErrorf(b.line, "a second key; the first one is in line %d", line)
		}
		if key, err = keyOf(b); err != nil {
			return nil, 0, err
		}
		line = b.line
	}
	if key == nil {
		return nil, 0, &lineError{0, "there is no private key in it; " + allowedKeys}
	}
	return key, line, nil
}

func keyOf(b block) (crypto.Signer, *lineError) {
	if b.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(b.Headers["Proc-Type"], "ENCRYPTED") {
		return nil, lineErrorf(b.line, "the key is encrypted, and nobody can be asked for its password; allowed: without one, as openssl pkey -in FILE -out NEW writes it")
	}
	var key any
	var err error
	switch b.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(b.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(b.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(b.Bytes)
	default:
		return nil, lineErrorf(b.line, "a key of kind %q; %s", b.Type, allowedKeys)
	}
	if err != nil {
		return nil, lineErrorf(b.line, "the key cannot be read: %s", strings.TrimPrefix(err.Error(), "x509: "))
	}
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if bits := k.N.BitLen(); bits < 1024 || bits > 8192 {
			return nil, lineErrorf(b.line, "an RSA key of %d bits; allowed: 2048 to 8192", bits)
		}
		return k, nil
	case *ecdsa.PrivateKey:
		if bits := k.Curve.Params().BitSize; bits < 256 {
			return nil, lineErrorf(b.line, "an ECDSA key on the curve %s; allowed: P-256, P-384, P-521", k.Curve.Params().Name)
		}
		return k, nil
	case ed25519.PrivateKey:
		return k, nil
	}
	return nil, lineErrorf(b.line, "a key that TLS cannot use; %s", allowedKeys)
}

// belongs reports whether a key is that of a certificate.
func belongs(key crypto.Signer, c *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(c.PublicKey)
}

// algorithm names the kind of a certificate's key.
func algorithm(c *x509.Certificate) string { return c.PublicKeyAlgorithm.String() }
