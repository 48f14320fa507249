//! A session with the GT daemon: tensor handles and the autograd tape.
