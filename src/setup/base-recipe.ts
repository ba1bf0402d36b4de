/** What the base template holds. Any change here gives it a new key, and the next set-up makes it anew. */

export const packages: readonly string[] = [
  'bash',
  'build-essential',
  'ca-certificates',
  'curl',
  'git',
  'iproute2',
  'less',
  'nano',
  'netbase',
  'openssh-client',
  'procps',
  'python-is-python3',
  'python3',
  'python3-pip',
  'python3-venv',
  'socat',
  'sudo',
  'unzip',
  'wget',
  'xz-utils',
];

/** What packages bring and a sandbox has no use for. Kept in the template, so that packages installed later are as lean. */
export const excludedPaths: readonly string[] = [
  '/usr/share/doc/*',
  '/usr/share/man/*',
  '/usr/share/info/*',
  '/usr/share/locale/*',
  '/usr/share/groff/*',
  '/usr/share/lintian/*',
  '/usr/share/linda/*',
  // With this marker pip refuses to install outside a virtual environment (PEP 668); the sandbox itself is the environment.
  '/usr/lib/python3*/EXTERNALLY-MANAGED',
];
export const includedPaths: readonly string[] = ['/usr/share/doc/*/copyright', '/usr/share/locale/locale.alias'];

/** Node and npm come from the npm registry: Debian's npm would bring four hundred packages. */
export const npmPackages = { nodeMajor: 24, npm: 'npm@11' };

const SEARCH_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** In gVisor every fork costs about 10 ms, and every command starts a login shell: these files use only what bash has built in. */
const etcProfile = `# Read by login shells. Forks nothing.
export PATH=${SEARCH_PATH}
export LANG="\${LANG:-C.UTF-8}"
export SHELL="\${SHELL:-/bin/bash}"

for script in /etc/profile.d/*.sh; do
  [ -r "$script" ] && . "$script"
done
unset script

case $- in
  *i*) [ -n "$BASH_VERSION" ] && [ -r /etc/bash.bashrc ] && . /etc/bash.bashrc ;;
esac
`;

const etcBashrc = `# Read by interactive shells. Forks nothing.
case $- in *i*) ;; *) return ;; esac
shopt -s checkwinsize
PS1='\\w \\$ '
`;

const dotProfile = `# Read by login shells. Forks nothing.
if [ -n "$BASH_VERSION" ] && [ -r "$HOME/.bashrc" ]; then
  . "$HOME/.bashrc"
fi
[ -d "$HOME/bin" ] && PATH="$HOME/bin:$PATH"
[ -d "$HOME/.local/bin" ] && PATH="$HOME/.local/bin:$PATH"
:
`;

// Not cut short for non-interactive shells: what an installer appends here is seen by the next command.
const dotBashrc = `# Read by every bash that is a login shell or interactive. Forks nothing.
case $- in
  *i*)
    HISTCONTROL=ignoreboth
    shopt -s histappend checkwinsize
    PS1='\\w \\$ '
    alias ls='ls --color=auto' grep='grep --color=auto' ll='ls -alF'
    ;;
esac
`;

export interface RecipeFile {
  path: string;
  text: string;
  mode: number;
  /** Owned by `user` instead of root. */
  ofUser?: boolean;
}

export const files: readonly RecipeFile[] = [
  { path: '/etc/profile', text: etcProfile, mode: 0o644 },
  { path: '/etc/bash.bashrc', text: etcBashrc, mode: 0o644 },
  { path: '/etc/skel/.profile', text: dotProfile, mode: 0o644 },
  { path: '/etc/skel/.bashrc', text: dotBashrc, mode: 0o644 },
  { path: '/root/.profile', text: dotProfile, mode: 0o644 },
  { path: '/root/.bashrc', text: dotBashrc, mode: 0o644 },
  { path: '/home/user/.profile', text: dotProfile, mode: 0o644, ofUser: true },
  { path: '/home/user/.bashrc', text: dotBashrc, mode: 0o644, ofUser: true },
  { path: '/etc/sudoers.d/user', text: 'user ALL=(ALL:ALL) NOPASSWD: ALL\n', mode: 0o440 },
  { path: '/etc/hostname', text: 'e2b.local\n', mode: 0o644 },
  {
    path: '/etc/hosts',
    text: '127.0.0.1 localhost e2b.local\n::1 localhost ip6-localhost ip6-loopback\n',
    mode: 0o644,
  },
  { path: '/etc/resolv.conf', text: 'nameserver 8.8.8.8\n', mode: 0o644 },
  { path: '/etc/machine-id', text: '', mode: 0o444 },
  { path: '/etc/apt/apt.conf.d/90sandbar', text: 'Acquire::Languages "none";\n', mode: 0o644 },
  {
    path: '/etc/dpkg/dpkg.cfg.d/90sandbar',
    text: [
      ...excludedPaths.map((each) => `path-exclude=${each}\n`),
      ...includedPaths.map((each) => `path-include=${each}\n`),
    ].join(''),
    mode: 0o644,
  },
  { path: '/.e2b', text: '', mode: 0o644 },
];

/** Login files of the distribution that would fork, or say things at the wrong moment. */
export const removedPaths: readonly string[] = [
  '/etc/skel/.bash_logout',
  '/home/user/.bash_logout',
  '/etc/apt/apt.conf.d/99mmdebstrap',
  '/etc/dpkg/dpkg.cfg.d/99mmdebstrap',
  '/var/lib/dbus/machine-id',
];

/** Every user may write here. */
export const worldWritable: readonly string[] = ['/usr/local', '/code'];

export const defaultUser = { name: 'user', uid: 1000, gid: 1000, home: '/home/user' };
