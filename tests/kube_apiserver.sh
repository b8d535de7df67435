#!/bin/sh
# Builds a real kube-apiserver (1.20.2) from Debian 12's source package, for the tests that take one:
#   sh tests/kube_apiserver.sh ~/kube && HANGDOG_KUBE_APISERVER=~/kube/kube-apiserver make test-slow ARGS="tests/server/actors -k kube"
# It takes some ten minutes of two cores and 5 GiB of disk, and as root:
#   apt-get install --no-install-recommends etcd-server golang-1.19-go rsync golang-github-modern-go-reflect2-dev
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)
cd "$dir"
mkdir -p lists/partial
echo 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main' >src.list
private="-o Dir::Etc::sourcelist=$dir/src.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$dir/lists"
# shellcheck disable=SC2086  # they are several options
apt-get $private update
# shellcheck disable=SC2086
apt-get $private source --download-only kubernetes
tree=$dir/go/src/k8s.io/kubernetes
mkdir -p "$tree"
tar -xzf kubernetes_1.20*.orig.tar.gz -C "$tree" --strip-components=1
tar -xJf kubernetes_1.20*.debian.tar.xz -C "$tree"
grep -v -e '^#' -e '^$' "$tree/debian/patches/series" | while read -r patch; do
    patch --silent --directory="$tree" --strip=1 --input="debian/patches/$patch"
done
# The vendored reflect2 crashes the server under Go 1.18 and later, when a resource of one's own is made.
rm -rf "$tree"/vendor/github.com/modern-go/reflect2/*
cp -r /usr/share/gocode/src/github.com/modern-go/reflect2/. "$tree/vendor/github.com/modern-go/reflect2/"
cat >version <<'END'
KUBE_GIT_COMMIT='debian'
KUBE_GIT_TREE_STATE='archive'
KUBE_GIT_VERSION='v1.20.2'
KUBE_GIT_MAJOR='1'
KUBE_GIT_MINOR='20'
END
export KUBE_GIT_VERSION_FILE="$dir/version" GOPROXY=off CGO_ENABLED=0 GO111MODULE=off GOPATH="$dir/go" GOCACHE="$dir/cache"
export PATH="/usr/lib/go-1.19/bin:$PATH"
cd "$tree"
make WHAT=cmd/kube-apiserver
cp _output/local/bin/linux/*/kube-apiserver "$dir/kube-apiserver"
echo "$dir/kube-apiserver"
