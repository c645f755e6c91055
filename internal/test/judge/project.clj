; Knossos, as `judge -knossos` calls it. Nothing of it is linked or shipped.
(defproject judge "0"
  :dependencies [[org.clojure/clojure "1.11.1"]
                 [knossos "0.3.7"]]
  :main knossos.cli)
