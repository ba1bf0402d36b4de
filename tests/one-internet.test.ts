// One file, so that one worker runs them one after the other: there is one internet of the tests on a machine. Each can also be run by its own name.
import './hostile/network.test.ts';
import './network/addresses.test.ts';
import './network/cost.test.ts';
import './network/crash.test.ts';
import './network/gateway.test.ts';
import './network/headers.test.ts';
import './network/names.test.ts';
import './network/python.test.ts';
import './network/tls.test.ts';
