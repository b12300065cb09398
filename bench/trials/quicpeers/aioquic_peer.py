"""A peer of HTTP/3 made with aioquic: see the trial quicpeers.

aioquic_peer.py server ADDRESS PORT CERTIFICATE KEY ROOT [ID]
aioquic_peer.py client ADDRESS PORT CERTIFICATE NAME PATH OUT [BYTES]

A server with an ID, 8 bytes in hexadecimal, writes it into its connection IDs, behind a first byte. A client with BYTES goes on from another
socket, with another connection ID, as soon as it has received so many. A client's ClientHello does not fit into one datagram.
"""
import asyncio
import os
import sys

import aioquic.quic.connection as connection
from aioquic.asyncio import connect, serve
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration


class Server(QuicConnectionProtocol):
    root = ""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None

    def quic_event_received(self, event):
        self.http = self.http or H3Connection(self._quic)
        for e in self.http.handle_event(event):
            if isinstance(e, HeadersReceived):
                path = dict(e.headers)[b":path"].decode().lstrip("/")
                with open(os.path.join(self.root, path), "rb") as f:
                    body = f.read()
                self.http.send_headers(e.stream_id, [(b":status", b"200")])
                self.http.send_data(e.stream_id, body, True)
                self.transmit()


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http, self.done, self.out = None, asyncio.get_running_loop().create_future(), None
        self.got, self.migrate = 0, 0

    def quic_event_received(self, event):
        if self.http is None:
            return
        for e in self.http.handle_event(event):
            if isinstance(e, HeadersReceived) and dict(e.headers)[b":status"] != b"200":
                self.done.set_exception(RuntimeError(str(e.headers)))
            if isinstance(e, DataReceived):
                self.out.write(e.data)
                self.got += len(e.data)
                if self.migrate and self.got >= self.migrate:
                    self.migrate = 0
                    asyncio.ensure_future(self.move())
                if e.stream_ended and not self.done.done():
                    self.done.set_result(None)

    def connection_lost(self, exc):
        if not self.done.done():
            self.done.set_exception(exc or RuntimeError("the connection has ended"))

    async def move(self):
        was = self._transport
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: Received(self), local_addr=was.get_extra_info("sockname")[:1] + (0,))
        self._transport = transport
        self._quic.change_connection_id()
        self._quic.send_ping(1)
        self.transmit()


class Received(asyncio.DatagramProtocol):
    """What arrives at the socket to which a client has moved."""

    def __init__(self, client):
        self.client = client

    def datagram_received(self, data, address):
        self.client.datagram_received(data, address)


async def server(address, port, certificate, key, root, server_id=None):
    length = 8
    if server_id:
        length, given, random = 16, bytes.fromhex(server_id), os.urandom

        class Routable:
            def __getattr__(self, name):
                return getattr(os, name)

            @staticmethod
            def urandom(n):
                return random(1) + given + random(7) if n == length else random(n)

        connection.os = Routable()
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN, connection_id_length=length)
    configuration.load_cert_chain(certificate, key)
    Server.root = root
    await serve(address, int(port), configuration=configuration, create_protocol=Server)
    await asyncio.Future()


async def client(address, port, certificate, name, path, out, migrate="0"):
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN + ["x" * 100 + str(i) for i in range(15)], server_name=name)
    configuration.load_verify_locations(certificate)
    async with connect(address, int(port), configuration=configuration, create_protocol=Client, local_port=0) as c:
        with open(out, "wb") as c.out:
            c.http, c.migrate = H3Connection(c._quic), int(migrate)
            stream = c._quic.get_next_available_stream_id()
            c.http.send_headers(stream, [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", name.encode()), (b":path", path.encode())], True)
            c.transmit()
            await c.done


asyncio.run({"server": server, "client": client}[sys.argv[1]](*sys.argv[2:]))
