#!/bin/bash
# Build the root of the virtual lab's servers from Debian's packages: build_root.sh FOLDER
#
# The virtual lab makes it again when this file changes.
set -eu
root=$1
packages=linux-image-amd64,systemd-sysv,udev,dbus,kmod,openssh-server,openssh-client,iproute2
packages+=,iputils-ping,rdma-core,ibverbs-utils,ibverbs-providers,rdmacm-utils,librdmacm1,perftest
packages+=,infiniband-diags,ethtool,iperf3,tcpdump,python3,sudo,procps,pciutils,linuxptp,chrony
debootstrap --variant=minbase --include=$packages bookworm "$root"
