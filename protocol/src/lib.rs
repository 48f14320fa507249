//! What a GT client and the daemon say to each other over the control socket.
