//go:build linux

package main

// A result of a case is nil, errCannot, or what went wrong.
type testCase struct {
	name  string
	setup setup
	what  string
	run   func(t *target) error
}

// cases returns all cases, in the order in which they run.
func cases() []testCase {
	var all []testCase
	add := func(s setup, name, what string, run func(t *target) error) {
		all = append(all, testCase{name, s, what, run})
	}

	for _, v := range []string{"tls1", "tls1_1"} {
		add(ecdsaSetup, "openssl/"+v, "s_client -"+v+" is refused", func(t *target) error {
			return t.refused("-"+v, "-cipher", "ALL:@SECLEVEL=0")
		})
	}
	for _, suite := range []string{"AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"} {
		add(ecdsaSetup, "openssl/tls1_2-"+suite, "an echo with ECDHE-ECDSA-"+suite, func(t *target) error {
			return t.echoes("ECDHE-ECDSA-"+suite, "-tls1_2", "-cipher", "ECDHE-ECDSA-"+suite)
		})
	}
	for _, suite := range []string{"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"} {
		add(ecdsaSetup, "openssl/tls1_3-"+suite, "an echo, if only "+suite+" is offered", func(t *target) error {
			return t.echoes("Cipher is "+suite, "-tls1_3", "-ciphersuites", suite)
		})
	}
	for _, group := range []string{"X25519", "P-256", "P-384", "P-521"} {
		add(ecdsaSetup, "openssl/group-"+group, "an echo, if only this key exchange is offered", func(t *target) error {
			return t.echoes("Verification: OK", "-tls1_3", "-groups", group)
		})
	}
	add(ecdsaSetup, "openssl/old-suites", "RC4, 3DES, NULL, anonymous and export ciphers are refused", func(t *target) error {
		return t.refused("-tls1_2", "-cipher", "NULL:aNULL:eNULL:RC4:3DES:EXPORT:MD5:@SECLEVEL=0")
	})
	add(ecdsaSetup, "openssl/verify", "the chain and the name are verified", func(t *target) error {
		return t.echoes("Verification: OK")
	})
	add(ecdsaSetup, "openssl/names", "the certificate is that of the server name", serverNames)
	add(strictSetup, "openssl/unknown-name", "unrecognized_name, if no certificate has the name", func(t *target) error {
		return t.refused("-servername", "nobody.example")
	})
	for _, v := range []string{"tls1_2", "tls1_3"} {
		add(ecdsaSetup, "openssl/resume-"+v, "the second connection resumes", func(t *target) error { return t.resumes(v) })
		add(ecdsaSetup, "openssl/fragments-"+v, "1 MiB and its echo in records of 512 bytes", func(t *target) error { return t.fragments(v) })
		add(ecdsaSetup, "native/up-half-"+v, "close_notify of the client is a half-close: the upstream gets all and the end, and answers then", func(t *target) error { return t.upHalf(v) })
		add(ecdsaSetup, "native/down-half-"+v, "a half-close of the upstream is close_notify: the other direction goes on", func(t *target) error { return t.downHalf(v) })
		add(ecdsaSetup, "native/bytes-"+v, "the handshake and a message arrive byte by byte", func(t *target) error { return t.byteByByte(v) })
	}
	add(ecdsaSetup, "openssl/renegotiate", "TLS 1.2: the client's renegotiation is refused", renegotiate)
	add(ecdsaSetup, "openssl/key-update", "TLS 1.3: updates of keys, ours and asked for", keyUpdate)
	add(ecdsaSetup, "openssl/early-data", "TLS 1.3: early data is not accepted", earlyData)
	add(ecdsaSetup, "openssl/alpn", "the first protocol of the server that the client knows", func(t *target) error {
		return t.echoes("ALPN protocol: h2", "-alpn", "http/1.1,h2")
	})
	add(ecdsaSetup, "openssl/alpn-unknown", "no_application_protocol, if none is known", func(t *target) error {
		return t.refused("-alpn", "gopher")
	})
	add(stapleSetup, "openssl/staple", "the OCSP response is stapled", func(t *target) error {
		return t.echoes("OCSP Response Status: successful", "-status")
	})
	for _, v := range []string{"tls1_2", "tls1_3"} {
		add(clientSetup, "openssl/client-"+v, "a client with a certificate is served", func(t *target) error {
			return t.echoes("", "-"+v, "-cert", t.client.Certificate, "-key", t.client.Key)
		})
		add(clientSetup, "openssl/client-none-"+v, "one without is not", func(t *target) error { return t.refused("-" + v) })
		add(clientSetup, "openssl/client-stranger-"+v, "nor one with a certificate of another authority", func(t *target) error {
			return t.refused("-"+v, "-cert", t.stranger.Certificate, "-key", t.stranger.Key)
		})
	}
	for _, v := range []string{"1.2", "1.3"} {
		add(ecdsaSetup, "curl/tls"+v, "curl gets its page", func(t *target) error { return t.curl(v) })
	}
	add(ecdsaSetup, "native/garbage", "what is not TLS, or breaks off, ends, and the next client is served", garbage)
	add(ecdsaSetup, "native/oversized", "a record that is longer than allowed gets an alert, or the end", oversized)
	add(rsaSetup, "rsa/tls1_2", "an echo with an RSA certificate", func(t *target) error {
		return t.echoes("ECDHE-RSA-AES128-GCM-SHA256", "-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256")
	})
	add(rsaSetup, "rsa/tls1_3", "an echo with an RSA certificate", func(t *target) error { return t.echoes("Verification: OK", "-tls1_3") })
	add(rsaSetup, "rsa/key-exchange", "RSA key exchange, which has no forward secrecy, is refused", func(t *target) error {
		return t.refused("-tls1_2", "-cipher", "kRSA:@SECLEVEL=0")
	})
	for _, kind := range []setup{ecdsaSetup, rsaSetup} {
		add(kind, "sslyze/"+string(kind), "sslyze finds nothing", sslyze)
		add(kind, "testssl/"+string(kind), "testssl.sh finds nothing above LOW", testssl)
	}
	for _, script := range scripts {
		add(rsaSetup, "tlsfuzzer/"+script.name, "tlsfuzzer: "+script.what, func(t *target) error { return t.fuzz(script) })
	}
	return all
}
