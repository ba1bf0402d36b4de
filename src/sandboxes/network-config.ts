/** The network part of a sandbox as the protocol names it (contract: SandboxNetworkConfig). */
export interface NetworkConfig {
  allowPublicTraffic?: boolean;
  allowOut?: string[];
  denyOut?: string[];
  egressProxy?: EgressProxy | null;
  maskRequestHost?: string;
  rules?: Record<string, NetworkRule[]>;
  httpsPorts?: number[];
}

export interface EgressProxy {
  /** host:port of a SOCKS5 server. */
  address: string;
  username?: string;
  password?: string;
}

export interface NetworkRule {
  transform?: { headers?: Record<string, string> };
}
