import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { WireBuild } from '../wire-plan.ts';

/** The name that the code-interpreter packages ask for. */
export const CODE_INTERPRETER = 'code-interpreter-v1';

const GUEST_FILES = path.join(import.meta.dirname, 'guest');
const HOME = '/opt/code-interpreter';
const PORT = 49_999;
/** Where a Linux machine keeps the authorities it trusts. */
const AUTHORITIES = '/etc/ssl/certs/ca-certificates.crt';
const BUILD_AUTHORITIES = '/tmp/build-authorities.pem';

/** From PyPI. The first two run the code, the others are what code for data is written with; plotly shows its figures by nbformat. */
const PYTHON_PACKAGES = [
  'ipykernel',
  'jupyter_client',
  'numpy',
  'pandas',
  'matplotlib',
  'scipy',
  'scikit-learn',
  'seaborn',
  'plotly',
  'nbformat',
  'sympy',
  'pillow',
  'requests',
  'beautifulsoup4',
  'openpyxl',
  'lxml',
];

export interface RecipeFile {
  name: string;
  content: Buffer;
}

/** A template that is made from files of this repository. */
export interface Recipe {
  name: string;
  build: WireBuild;
  /** Files of each COPY step, by the hash that the step names. */
  uploads: Map<string, RecipeFile[]>;
}

/** Python, JavaScript, TypeScript and bash behind the interface of the code-interpreter packages, on the base template. */
export function codeInterpreterRecipe(): Recipe {
  const server = readdirSync(GUEST_FILES).map((name) => ({
    name: `server/${name}`,
    content: readFileSync(path.join(GUEST_FILES, name)),
  }));
  // The build trusts whom the machine trusts, so that it works behind a proxy that the machine works behind. Not kept in the template.
  const authorities = [{ name: 'authorities.pem', content: readFileSync(AUTHORITIES) }];
  const uploads = new Map([server, authorities].map((files) => [hashOf(files), files]));
  return {
    name: CODE_INTERPRETER,
    uploads,
    build: {
      fromTemplate: 'base',
      steps: [
        { type: 'COPY', args: ['authorities.pem', BUILD_AUTHORITIES, 'root', '0644'], filesHash: hashOf(authorities) },
        {
          type: 'RUN',
          args: [
            [
              `export PIP_CERT=${BUILD_AUTHORITIES} PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1`,
              `pip install --no-cache-dir --no-compile --only-binary :all: --progress-bar off --retries 10 ${PYTHON_PACKAGES.join(' ')}`,
              // As pip would, but without the packages' tests. A file that cannot be compiled is no loss.
              `{ python3 -m compileall -qq -x /tests/ /usr/local/lib/python3*/dist-packages || true; }`,
              `rm ${BUILD_AUTHORITIES}`,
            ].join(' && '),
            'root',
          ],
        },
        { type: 'COPY', args: ['server', HOME, 'root', ''], filesHash: hashOf(server) },
      ],
      startCmd: `exec python3 ${HOME}/server.py`,
      readyCmd: `curl -fs -o /dev/null http://localhost:${PORT}/health`,
    },
  };
}

function hashOf(files: readonly RecipeFile[]): string {
  const hash = createHash('sha256');
  for (const { name, content } of files) hash.update(`${name}\0${content.length}\0`).update(content);
  return hash.digest('hex');
}
