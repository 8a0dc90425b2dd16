# shellcheck shell=bash
# The first process of a node: node-init.sh FOLDER NUMBER [HOOK]
# It runs in mount, pid, network, hostname and IPC namespaces of its own, gives the node its own standard paths out of
# FOLDER, and then stays as the reaper. Killing it ends everything in the node, mounts and interfaces included.
set -eu
folder=$1 number=$2 hook=${3:-}

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mount --make-shared /run
mkdir -p /run/lock /run/cdi

mount --bind "$folder/kubelet" /var/lib/kubelet
mount --make-rshared /var/lib/kubelet
mount --bind "$folder/cni-state" /var/lib/cni
mount --bind "$folder/cdi" /etc/cdi
mount --bind "$folder/etc-kubernetes" /etc/kubernetes
mount --bind "$folder/pod-logs" /var/log/pods
mount --bind "$folder/container-logs" /var/log/containers
if [ -d "$folder/proc/driver" ]; then
    mount --bind "$folder/proc/driver" /proc/driver # what the kernel module of an NVIDIA driver shows there
fi

hostname "node-$number"
ip link set lo up
if [ -n "$hook" ]; then
    # shellcheck disable=SC1090  # the caller's file
    . "$hook" "$number"
fi
touch "$folder/namespaces-ready"

trap : CHLD TERM
while :; do
    sleep 1000 &
    wait $! || true
done
