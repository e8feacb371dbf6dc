"""The task worker's sandbox: OS layers, a seccomp filter and an audit hook."""
