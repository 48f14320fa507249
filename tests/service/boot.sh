#!/bin/sh
# Boots a systemd of its own: this machine's root file system under a layer in memory, in namespaces of its own.
#
#   unshare --pid --fork --mount --uts --ipc --cgroup --kill-child boot.sh FOLDER
#
# Nothing that is done there is seen outside, and it ends with the process that called `unshare`.

set -eu
root=$1/root
mount --make-rprivate /
mkdir -p "$1/layer" "$root"
mount -t tmpfs tmpfs "$1/layer"
mkdir "$1/layer/upper" "$1/layer/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/layer/upper,workdir=$1/layer/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"

# No more than a machine needs to start services; what would reach for this machine's hardware or clock stays away.
cat >"$root/etc/systemd/system/gt-boot.target" <<END
[Unit]
Requires=sysinit.target
After=sysinit.target
END
for unit in systemd-udevd.service systemd-udev-trigger.service systemd-timesyncd.service systemd-modules-load.service \
    systemd-sysctl.service systemd-firstboot.service systemd-random-seed.service systemd-binfmt.service \
    systemd-journald-audit.socket kmod-static-nodes.service dev-hugepages.mount sys-kernel-debug.mount \
    sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
: >"$root/etc/fstab"
exec env -i container=gt PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    chroot "$root" /lib/systemd/systemd --system --unit=gt-boot.target --log-target=journal --show-status=no
