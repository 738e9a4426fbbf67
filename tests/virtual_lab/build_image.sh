#!/bin/bash
# Make kernel, initrd and disk of the virtual lab's servers of a root: build_image.sh ROOT IMAGE
#
# The root is changed. IMAGE is the folder to write to. The virtual lab makes it again when this file
# or the root changes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$1 image=$2
mkdir -p "$image"

# The account that Lightrig uses. The lab listens on loopback only.
chroot "$root" /bin/sh -eu <<'IN'
id bench >/dev/null 2>&1 || useradd --create-home --shell /bin/bash bench
echo 'bench:bench' | chpasswd
echo 'bench ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/bench
mkdir -p /home/bench/.ssh /root/.ssh
chmod 700 /home/bench/.ssh /root/.ssh
for unit in chrony iperf3 ptp4l phc2sys timemaster systemd-timesyncd apt-daily.timer \
    apt-daily-upgrade.timer fstrim.timer dpkg-db-backup.timer e2scrub_all.timer; do
    systemctl disable $unit >/dev/null 2>&1 || true
done
# Their work at the start is minutes under emulation.
for unit in rdma-load-modules@.service rdma-ndd.service iwpmd.service rdma-hw.target \
    systemd-journal-flush.service systemd-update-utmp.service systemd-random-seed.service \
    systemd-binfmt.service getty@tty1.service serial-getty@ttyS0.service systemd-logind.service \
    e2scrub_reap.service dbus.service; do
    systemctl mask $unit >/dev/null 2>&1 || true
done
systemctl enable ssh >/dev/null 2>&1
rm -f /etc/ssh/ssh_host_* /home/bench/.ssh/id_ed25519
# One key of the cheapest kind for both: a key of RSA takes a minute under emulation.
ssh-keygen -q -t ed25519 -N '' -C '' -f /etc/ssh/ssh_host_ed25519_key
# With the same key the servers reach each other, as the nodes of a cluster do.
ssh-keygen -q -t ed25519 -N '' -C '' -f /home/bench/.ssh/id_ed25519
cat > /etc/ssh/sshd_config.d/virtual_lab.conf <<'CONF'
HostKey /etc/ssh/ssh_host_ed25519_key
UseDNS no
UsePAM no
MaxStartups 100
PermitRootLogin yes
CONF
IN
[ -e "$image/id_bench" ] || ssh-keygen -q -t ed25519 -N '' -C '' -f "$image/id_bench"
cat "$image/id_bench.pub" "$root/home/bench/.ssh/id_ed25519.pub" |
    tee "$root/root/.ssh/authorized_keys" > "$root/home/bench/.ssh/authorized_keys"
chroot "$root" chown -R bench:bench /home/bench/.ssh
cut -d' ' -f1,2 "$root/etc/ssh/ssh_host_ed25519_key.pub" > "$image/host_key.pub"

echo '/dev/vda / ext4 noatime 0 1' > "$root/etc/fstab"
name() { # name the interface with any of these addresses
    printf '[Match]\nMACAddress=%s\n[Link]\nName=%s\n' "$2" "$1" \
        > "$root/etc/systemd/network/10-$1.link"
}
name fabric0 '52:54:00:77:00:00 52:54:00:77:01:00'
name fabric1 '52:54:00:77:00:01 52:54:00:77:01:01'
name control '52:54:00:77:00:ff 52:54:00:77:01:ff'
name house '52:54:00:77:00:fe 52:54:00:77:01:fe'
name spare '52:54:00:77:00:fd 52:54:00:77:01:fd'
cat > "$root/usr/local/sbin/virtual-lab-setup" <<'SETUP'
#!/bin/bash
# Addresses and RDMA links of a server of the virtual lab; its number is on the kernel's command line.
n=$(sed -n 's/.*virtual_lab=\([0-9]\).*/\1/p' /proc/cmdline)
hostname server$n
for device in control house fabric0 fabric1 spare; do
    for _ in $(seq 100); do [ -e /sys/class/net/$device ] && break; sleep 0.1; done
done
# Two ports in one subnet, as on any server with several rails.
sysctl -q net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 \
    net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.default.rp_filter=2
ip addr add 10.0.2.15/24 dev control
ip link set control up
ip addr add 192.168.77.$((n + 1))/24 dev house
ip link set house up
ip link set spare up
ip route add default via 10.0.2.2
modprobe rdma_rxe
for p in 0 1; do
    sysctl -q net.ipv6.conf.fabric$p.disable_ipv6=0
    address=192.0.2.$((2 * n + p + 1))
    ip addr add $address/24 dev fabric$p
    ip link set fabric$p up
    ip rule add from $address table $((100 + p))
    ip route add 192.0.2.0/24 dev fabric$p src $address table $((100 + p))
    rdma link add rxe$p type rxe netdev fabric$p
done
exit 0
SETUP
chmod +x "$root/usr/local/sbin/virtual-lab-setup"
cat > "$root/etc/systemd/system/virtual-lab.service" <<'UNIT'
[Unit]
Description=Ports of a server of the virtual lab
Before=ssh.service
After=systemd-udevd.service systemd-modules-load.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/virtual-lab-setup
[Install]
WantedBy=multi-user.target
UNIT
chroot "$root" systemctl enable virtual-lab >/dev/null 2>&1
printf '127.0.0.1 localhost\n192.168.77.1 server0\n192.168.77.2 server1\n' > "$root/etc/hosts"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*

# Under emulation unpacking costs more than reading: a small initrd, and the kernel as an ELF file.
sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=gzip/' \
    "$root/etc/initramfs-tools/initramfs.conf"
printf 'virtio_pci\nvirtio_blk\next4\n' > "$root/etc/initramfs-tools/modules"
chroot "$root" update-initramfs -u >/dev/null 2>&1
cp "$root"/initrd.img "$image/initrd"
python3 "$here/unpack_kernel.py" "$root/vmlinuz" "$image/vmlinux"
rm -f "$image/disk.raw"
truncate --size 3G "$image/disk.raw"
mke2fs -q -t ext4 -O ^metadata_csum_seed -F -d "$root" "$image/disk.raw"
