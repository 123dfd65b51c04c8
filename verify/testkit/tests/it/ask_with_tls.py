"""Asks a ZooKeeper server what it is, over TLS."""

import socket
import ssl
import sys

host, port, authority, *itself = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
if itself:
    context.load_cert_chain(*itself)
stream = socket.create_connection((host, port))
stream = context.wrap_socket(stream, server_hostname=host)
stream.sendall(b"srvr")
while got := stream.recv(4096):
    print(got.decode(), end="")
