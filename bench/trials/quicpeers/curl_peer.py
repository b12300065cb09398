"""A client of HTTP/3 made with libcurl, by curl_cffi: see the trial quicpeers.

curl_peer.py ADDRESS PORT CA NAME PATH OUT
"""
import sys

from curl_cffi import Curl, CurlHttpVersion, CurlInfo, CurlOpt

address, port, ca, name, path, out = sys.argv[1:]
curl = Curl()
curl.setopt(CurlOpt.URL, f"https://{name}:{port}{path}".encode())
curl.setopt(CurlOpt.RESOLVE, [f"{name}:{port}:{address}".encode()])
curl.setopt(CurlOpt.CAINFO, ca.encode())
curl.setopt(CurlOpt.HTTP_VERSION, CurlHttpVersion.V3ONLY)
curl.setopt(CurlOpt.FAILONERROR, 1)
with open(out, "wb") as file:
    curl.setopt(CurlOpt.WRITEDATA, file)
    curl.perform()
used = curl.getinfo(CurlInfo.HTTP_VERSION)
if used != CurlHttpVersion.V3:
    sys.exit(f"HTTP version {used}")
