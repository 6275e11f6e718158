// Asks the browser for a passkey: a new one, or its signature of an approval.
// Without this script the page says how to approve elsewhere.
"use strict";
(() => {
  if (!window.PublicKeyCredential) return;
  document.documentElement.classList.add("passkeys");
  const bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)));
  let busy = false;

  async function added(name) {
    const { response } = await navigator.credentials.create({ publicKey: {
      rp: { name: "placet" },
      user: { id: crypto.getRandomValues(new Uint8Array(16)), name, displayName: name },
      challenge: crypto.getRandomValues(new Uint8Array(16)), // nothing is attested
      pubKeyCredParams: [{ type: "public-key", alg: -7 }],
      authenticatorSelection: { residentKey: "required", userVerification: "required" },
    } });
    return { point: response.getPublicKey().slice(-65) };
  }

  async function signed(challenge) {
    const { response } = await navigator.credentials.get({ publicKey: { challenge: bytes(challenge), userVerification: "required" } });
    return { authenticator: response.authenticatorData, client_data: response.clientDataJSON, signature: response.signature };
  }

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("form.passkey")) return;
    event.preventDefault();
    if (busy) return;
    busy = true;
    try {
      const { challenge, user } = form.dataset;
      const answer = await (challenge ? signed(challenge) : added(user));
      for (const [name, value] of Object.entries(answer)) form.elements[name].value = text(value);
      if (!form.isConnected) document.body.append(form); // the page changed meanwhile
      form.submit();
    } catch { form.querySelector("[role=alert]").hidden = false; }
    busy = false;
  });
})();
