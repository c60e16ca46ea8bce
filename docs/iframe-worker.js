// Browsers start no worker in a page that was opened from the disk. There, the script of the search runs in a
// hidden frame, which sends and receives the same messages.
class IFrameWorker extends EventTarget {
  constructor(address) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);

    const scope = frame.contentWindow;
    scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
    const load = (source) =>
      new Promise((resolve, reject) => {
        const script = scope.document.createElement("script");
        script.src = source;
        script.onload = resolve;
        script.onerror = () => reject(new Error(source));
        scope.document.body.append(script);
      });
    scope.importScripts = async (...sources) => {
      for (const source of sources) await load(source);
    };
    this.scope = scope;
    this.ready = load(address);
  }

  postMessage(data) {
    this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", {data})));
  }

  terminate() {}
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
